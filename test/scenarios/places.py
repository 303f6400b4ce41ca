"""Where the repository of a story is: a folder today. A story knows it by what every kind of place can do."""

from pathlib import Path


class Folder:
    """A repository in a folder. `setup` is SQL that a session needs before it can use the location."""

    setup = ""

    def __init__(self, path):
        self.path = Path(path)
        self.location = str(self.path)

    def keys(self, under=""):
        """Every object, by its key. The lock file of a folder is none."""
        files = (file for file in self.path.rglob("*") if file.is_file())
        keys = sorted(file.relative_to(self.path).as_posix() for file in files)
        return [key for key in keys if key.startswith(under) and key != ".fdl-lock"]

    def read(self, key):
        return (self.path / key).read_bytes()

    def text(self, key):
        return self.read(key).decode("utf-8")

    def size(self, key):
        return (self.path / key).stat().st_size

    def copy(self, key, target):
        """A copy of an object as a file of this machine."""
        Path(target).write_bytes(self.read(key))
        return target


PLACES = {"folder": Folder}
