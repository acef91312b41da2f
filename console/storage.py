"""Static files under names that carry a hash of their content."""

from __future__ import annotations

from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Also rewrites the imports between our script modules to hashed names, so that
    a browser never runs one release's module with another's.

    Only ours, in ``js/``: packages bring scripts that import what is not a file.
    """

    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        (
            "js/*.js",
            CompressedManifestStaticFilesStorage._js_module_import_aggregation_patterns[
                1
            ],
        ),
    )
