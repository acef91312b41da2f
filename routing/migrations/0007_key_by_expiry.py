"""Which keys expire soon, for every look at the first page."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0006_usage_day")]
    operations = [
        migrations.AddIndex(
            model_name="apikey",
            index=models.Index(
                fields=["expires_at", "revoked_at"],
                condition=models.Q(("revoked_at__isnull", True)),
                name="key_by_expiry",
            ),
        ),
    ]
