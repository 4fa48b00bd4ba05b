"""The web app: pages in a browser, served by this process and by nothing else.

NiceGUI reads and writes a storage folder in the current folder, unless it is told another one before it is
imported. The app keeps nothing there, and what a project might have put there is not read.
"""

import os

_STORAGE = "NICEGUI_STORAGE_PATH"
_before = os.environ.get(_STORAGE)
os.environ[_STORAGE] = os.devnull
try:
    import nicegui  # noqa: F401 - imported for where it keeps its storage
finally:
    # Programs that an agent starts inherit the environment, and may be applications of NiceGUI themselves.
    if _before is None:
        del os.environ[_STORAGE]
    else:
        os.environ[_STORAGE] = _before
