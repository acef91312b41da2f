"""A route points only at a generation whose weights sum to 10 000, or has none."""

from django.db import migrations

SUM = """(
    SELECT COALESCE(SUM(w.weight_bp), 10000) FROM routing_generationweight w
    JOIN routing_generation g ON g.id = w.generation_id
    WHERE g.route_id = NEW.id AND g.number = NEW.generation
)"""

SQLITE = f"""
CREATE TRIGGER weights_sum BEFORE UPDATE OF generation ON routing_route
WHEN {SUM} <> 10000
BEGIN SELECT RAISE(ABORT, 'the weights of a generation sum to 10000'); END
"""

POSTGRESQL = f"""
CREATE FUNCTION weights_sum() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF {SUM} <> 10000 THEN
        RAISE EXCEPTION 'the weights of a generation sum to 10000'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER weights_sum BEFORE UPDATE OF generation ON routing_route
FOR EACH ROW EXECUTE FUNCTION weights_sum();
"""


def create(apps, schema_editor):
    schema_editor.execute(
        POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE
    )


def drop(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER weights_sum ON routing_route")
        schema_editor.execute("DROP FUNCTION weights_sum")
    else:
        schema_editor.execute("DROP TRIGGER weights_sum")


class Migration(migrations.Migration):
    dependencies = [("routing", "0001_initial")]
    operations = [migrations.RunPython(create, drop)]
