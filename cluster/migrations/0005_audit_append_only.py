"""The audit log only grows, whatever code asks; and it can be searched."""

from django.db import migrations, models

_SAYS = "the audit log only grows"

SQLITE = {
    verb: f"""
CREATE TRIGGER audit_no_{verb} BEFORE {verb.upper()} ON cluster_auditrecord
BEGIN SELECT RAISE(ABORT, '{_SAYS}'); END
"""
    for verb in ("update", "delete")
}

POSTGRESQL = f"""
CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{_SAYS}' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON cluster_auditrecord
FOR EACH ROW EXECUTE FUNCTION audit_append_only();
"""


def create(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(POSTGRESQL)
    else:
        for statement in SQLITE.values():
            schema_editor.execute(statement)


def drop(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER audit_append_only ON cluster_auditrecord")
        schema_editor.execute("DROP FUNCTION audit_append_only")
    else:
        for verb in SQLITE:
            schema_editor.execute(f"DROP TRIGGER audit_no_{verb}")


class Migration(migrations.Migration):
    dependencies = [("cluster", "0004_replica_transitions")]
    operations = [
        migrations.AddIndex(
            model_name="auditrecord",
            index=models.Index(fields=["actor_name", "-id"], name="audit_by_actor"),
        ),
        migrations.AddIndex(
            model_name="auditrecord",
            index=models.Index(fields=["action", "-id"], name="audit_by_action"),
        ),
        migrations.RunPython(create, drop),
    ]
