"""The texts of the audit log that are searched, without what its records hold."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cluster", "0005_audit_append_only")]
    operations = [
        migrations.AddIndex(
            model_name="auditrecord",
            index=models.Index(
                fields=["-id", "actor_name", "action", "target", "actor_address"],
                name="audit_text",
            ),
        ),
    ]
