"""Where operators' wishes lie: small files `inbox-files/<n>.json` of the warehouse, made once, never changed.

Each gets its number by a conditional create, so that all readers see one order whatever the writers' clocks say; no
JVM is needed to write one or to watch for them. What a wish means is decided in `wishes`.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

from spindle.errors import WarehouseError
from spindle.store import Store
from spindle.wishes import What, Wish, Word, check, of_fields

FOLDER = "inbox-files/"
_ATTEMPTS = 100  # each lost race means that somebody else's wish came in

_log = logging.getLogger(__name__)


def write(store: Store, what: What, *, at: str, who: str, host: str | None = None, value: str | None = None) -> Wish:
    """Makes a wish in the warehouse of `store`; it counts from now on, after all that were made before it.

    Raises:
        ValueError: it lacks what it needs. WarehouseError: the store cannot be written.
    """
    for _ in range(_ATTEMPTS):
        wish = Wish(f"{int((_ids(store) or ['0'])[-1]) + 1:09d}", at, who, what, host, value)
        check(wish)
        told = {"at": at, "who": who, "what": what, "host": host, "url": None, "value": value}
        if store.create_exclusive(f"{FOLDER}{wish.id}.json", json.dumps(told).encode()):
            return wish
    raise WarehouseError(f"{FOLDER}: {_ATTEMPTS} races lost; is the store's conditional create broken?")


def read(store: Store, after: str = "") -> list[Wish]:
    """Wishes in their order, those after the id `after` only. A file that holds none is reported and left out."""
    return [wish for wish in (_read_one(store, one) for one in _ids(store) if one > after) if wish is not None]


def last(store: Store) -> str:
    """The id of the last wish made; "" where none is."""
    return (_ids(store) or [""])[-1]


@dataclass(slots=True)
class Ear:
    """Listens to the wishes of a warehouse: each file is read once. `store` None: nobody speaks."""

    store: Store | None = None
    word: Word = field(default_factory=Word)
    last: str = ""

    def listen(self) -> Word:
        """What stands now."""
        for one in [] if self.store is None else [one for one in _ids(self.store) if one > self.last]:
            if self.store is not None and (wish := _read_one(self.store, one)) is not None:
                self.word = self.word.after(wish)
            self.last = one
        return self.word


def _ids(store: Store) -> list[str]:
    """All numbers given, in order; other files in the folder are nobody's wish."""
    stems = [name.removeprefix(FOLDER).removesuffix(".json") for name in store.list(FOLDER)]
    return sorted(stem for stem in stems if len(stem) == 9 and stem.isdigit())


def _read_one(store: Store, number: str) -> Wish | None:
    try:
        return of_fields(number, json.loads(store.get(f"{FOLDER}{number}.json")))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _log.warning("%s%s.json is no wish and was left out: %s", FOLDER, number, error)
        return None
