"""A version that a replica used never changes, whatever code asks for it."""

from django.db import migrations

COLUMNS = "name, engine, served_name, artifact, artifact_sha256, params, used_at"

SQLITE = f"""
CREATE TRIGGER version_immutable BEFORE UPDATE OF {COLUMNS} ON cluster_version
WHEN OLD.used_at IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a version is immutable once a replica used it'); END
"""

POSTGRESQL = f"""
CREATE FUNCTION version_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a version is immutable once a replica used it'
        USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER version_immutable BEFORE UPDATE OF {COLUMNS} ON cluster_version
FOR EACH ROW WHEN (OLD.used_at IS NOT NULL) EXECUTE FUNCTION version_immutable();
"""


def create(apps, schema_editor):
    schema_editor.execute(
        POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE
    )


def drop(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER version_immutable ON cluster_version")
        schema_editor.execute("DROP FUNCTION version_immutable")
    else:
        schema_editor.execute("DROP TRIGGER version_immutable")


class Migration(migrations.Migration):
    dependencies = [("cluster", "0001_initial")]
    operations = [migrations.RunPython(create, drop)]
