"""The product's settings with a quicker clock: what takes minutes in a fleet takes seconds here."""

import json
import os

from kvaudit.settings import *  # noqa: F403

globals().update({f"AUDIT_{name}": value for name, value in json.loads(os.environ["FLOW_AUDIT"]).items()})
# Pages are rendered here, not served: nobody has collected the static files.
globals()["STORAGES"]["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
