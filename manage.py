#!/usr/bin/env python3
"""Entry for Django's administrative commands; nothing else lives here."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        # A wrong setting is told in its own sentence; where it was read is no help.
        sys.exit(str(error))
