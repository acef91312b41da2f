"""What lists of keys filter by, and which changes Redis has yet to hear of.

Keys from before count as sent: the mark of completeness that Redis has from before
names no run of it, so the next reconcile writes them all anyway.
"""

import routing.models.list_index
from django.db import migrations, models


def search_text_fill(apps, schema_editor):
    keys = apps.get_model('routing', 'ApiKey').objects.select_related('team')
    last = ''
    while rows := list(keys.filter(pk__gt=last).order_by('pk')[:2000]):
        with schema_editor.connection.cursor() as cursor:
            cursor.executemany(
                'UPDATE routing_apikey SET search_text = %s, sent = 1 WHERE id = %s',
                [(search_text(key), key.pk) for key in rows],
            )
        last = rows[-1].pk


def search_text(key):
    parts = [f'sk-{key.id}\u2026{key.last_four}', key.name, key.owner, key.team.slug]
    return '\n'.join([*parts, *(f'#{tag}' for tag in key.tags)]).casefold()


class Migration(migrations.Migration):

    dependencies = [
        ('routing', '0004_outcome_by_failure'),
    ]

    operations = [
        migrations.AddField(
            model_name='apikey',
            name='change',
            field=models.PositiveIntegerField(default=1, editable=False),
        ),
        migrations.AddField(
            model_name='apikey',
            name='search_text',
            field=models.TextField(default='', editable=False),
        ),
        migrations.AddField(
            model_name='apikey',
            name='sent',
            field=models.PositiveIntegerField(default=0, editable=False),
        ),
        migrations.RunPython(search_text_fill, migrations.RunPython.noop, elidable=True),
        migrations.AddIndex(
            model_name='apikey',
            index=routing.models.list_index.ListIndex(carried=['team', 'revoked_at', 'expires_at', 'search_text'], fields=['-created_at', 'id'], name='key_by_age'),
        ),
        migrations.AddIndex(
            model_name='apikey',
            index=routing.models.list_index.ListIndex(carried=['revoked_at', 'expires_at', 'search_text'], fields=['team', '-created_at', 'id'], name='key_by_team'),
        ),
        migrations.AddIndex(
            model_name='apikey',
            index=routing.models.list_index.ListIndex(carried=['team', 'revoked_at', 'expires_at', 'search_text'], condition=models.Q(('last_used_at__isnull', True)), fields=['-created_at', 'id'], name='key_never_used'),
        ),
        migrations.AddIndex(
            model_name='apikey',
            index=models.Index(condition=models.Q(('revoked_at__isnull', True)), fields=['team', 'expires_at'], name='key_live_by_team'),
        ),
        migrations.AddIndex(
            model_name='apikey',
            index=models.Index(condition=models.Q(('sent__lt', models.F('change'))), fields=['id'], name='key_unsent'),
        ),
    ]
