"""Public click logs for bench/keras_quality.py: compact ids in NumPy arrays, files that workers
read, and the figures of predictions."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from _quality import DATA, FRAPPE, FRAPPE_IDS

MOVIELENS = DATA / "movielens_1m"
#: Movies before a rating that a model of sequences sees.
HISTORY = 30
#: A rating from which on somebody liked a movie.
LIKED = 4
#: Of so many rows to train on, one tells how many epochs are good.
VALIDATION_EVERY = 20


@dataclass(frozen=True)
class Columns:
    """What the columns of ids are: fields of one id, several ids of one field (0 where there are
    fewer), and what came before, as ids and, in as many columns, what became of each of them.
    candidate: the column of what these may be like, an item; what is before it is the user's. All
    ids are below id_space."""

    id_space: int
    single: int
    several: int = 0
    history: int = 0
    candidate: int = 1

    @property
    def fields(self) -> int:
        """Columns without a history."""
        return self.single + self.several

    @property
    def width(self) -> int:
        return self.fields + 2 * self.history


@dataclass(frozen=True)
class Part:
    """Examples: ids [n, width], labels [n, tasks] of 0 and 1. The first task is the one to learn,
    the others are for models of several."""

    ids: np.ndarray
    labels: np.ndarray

    @property
    def clicks(self) -> np.ndarray:
        """The labels of the first task."""
        return self.labels[:, 0]


@dataclass(frozen=True)
class Data:
    """A set in its splits."""

    columns: Columns
    train: Part
    valid: Part
    test: Part

    def of(self, places: Sequence[int], columns: Columns) -> Data:
        """Some of the columns, as others explain them."""
        train, valid, test = (
            Part(np.ascontiguousarray(part.ids[:, list(places)]), part.labels)
            for part in (self.train, self.valid, self.test)
        )
        return Data(columns, train, valid, test)


def frappe() -> Data:
    """Ids are compact, and in one space, as they come."""

    def read(name: str) -> Part:
        with gzip.open(FRAPPE / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
            rows = np.loadtxt(file, np.int32, delimiter=",", skiprows=1)
        return Part(np.ascontiguousarray(rows[:, 1:]), rows[:, :1])

    return Data(Columns(FRAPPE_IDS, 10), read("train"), read("valid"), read("test"))


class _Ids:
    """Numbers for values of several fields in one space; 0 is no value."""

    def __init__(self) -> None:
        self.count = 1

    def of(self, values: np.ndarray) -> np.ndarray:
        """Those of a field, whose values are all there."""
        known, places = np.unique(values, return_inverse=True)
        first, self.count = self.count, self.count + len(known)
        return (first + places.reshape(values.shape)).astype(np.int32)


def movielens() -> Data:
    """Ratings as clicks: a rating of LIKED or more is one, a second task are those of 5. Fields:
    user, gender, age, occupation, first three digits of the zip code, movie, and genres; the
    history is what the user has rated before, as far as it is to be trained on, and how."""
    ids, users, movies = _Ids(), _lines(MOVIELENS / "users.dat"), _Movies()
    splits = _split(lambda rating: rating > 0, VALIDATION_EVERY)
    user_keys, of_user = _users(ids, users, zips=True)
    of_movie, of_genres = movies.keyed(ids), movies.genres(ids)
    of_rating = ids.of(np.arange(1, 6))
    fields = of_user.shape[1] + 1
    columns = Columns(ids.count, fields, of_genres.shape[1], HISTORY, candidate=fields - 1)

    train = splits["train"]
    seen = of_movie[movies.places(train)]
    how = of_rating[train[:, 2] - 1]

    def part(rows: np.ndarray) -> Part:
        place = movies.places(rows)
        before = _places_before(train, rows)
        found = np.concatenate([
            of_user[np.searchsorted(user_keys, rows[:, 0])], of_movie[place, None],
            of_genres[place], np.where(before < 0, 0, seen[before]),
            np.where(before < 0, 0, how[before]),
        ], axis=1, dtype=np.int32)  # fmt: skip
        return Part(found, np.stack([rows[:, 2] >= LIKED, rows[:, 2] == 5], 1).astype(np.int32))

    return Data(columns, part(train), part(splits["valid"]), part(splits["test"]))


def opinions() -> Data:
    """MovieLens as AutoInt's paper and RecBole have it: ratings of 3 are left out, 4 and 5 are
    clicks; a tenth of all to validate and a tenth to test. Fields, RecBole's: user, gender, age,
    occupation, movie, the year it is of, and genres."""
    ids, users, movies = _Ids(), _lines(MOVIELENS / "users.dat"), _Movies()
    splits = _split(lambda rating: rating != 3, 9)
    user_keys, of_user = _users(ids, users, zips=False)
    of_movie, of_year, of_genres = movies.keyed(ids), movies.years(ids), movies.genres(ids)
    fields = of_user.shape[1]
    columns = Columns(ids.count, fields + 2, of_genres.shape[1], candidate=fields)

    def part(rows: np.ndarray) -> Part:
        place = movies.places(rows)
        found = np.concatenate([
            of_user[np.searchsorted(user_keys, rows[:, 0])], of_movie[place, None],
            of_year[place, None], of_genres[place],
        ], axis=1, dtype=np.int32)  # fmt: skip
        return Part(found, (rows[:, 2:3] >= LIKED).astype(np.int32))

    return Data(columns, *(part(splits[name]) for name in ("train", "valid", "test")))


def _split(is_wanted: Callable[[np.ndarray], np.ndarray], every: int) -> dict[str, np.ndarray]:
    """Ratings in their splits; one in `every` of those to train on is to validate."""
    splits = {name: _ratings(MOVIELENS / f"ratings_{name}.csv.gz") for name in ("train", "test")}
    held = np.random.default_rng(17).random(len(splits["train"])) * every < 1
    splits["valid"] = splits["train"][held]
    splits["train"] = splits["train"][~held]
    return {name: rows[is_wanted(rows[:, 2])] for name, rows in splits.items()}


def _users(ids: _Ids, users: list[list[str]], zips: bool) -> tuple[np.ndarray, np.ndarray]:
    """(keys of users, for each of them user, gender, age, occupation and perhaps zip code)."""
    keys = np.array([int(user[0]) for user in users])
    fields = [keys, *(np.array([user[i] for user in users]) for i in (1, 2, 3))]
    if zips:
        fields.append(np.array([user[4][:3] for user in users]))
    return keys, np.stack([ids.of(field) for field in fields], axis=1)


class _Movies:
    """What is known of movies, in the order of their keys."""

    def __init__(self) -> None:
        self._movies = _lines(MOVIELENS / "movies.dat")
        self._keys = np.array([int(movie[0]) for movie in self._movies])

    def places(self, ratings: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._keys, ratings[:, 1])

    def keyed(self, ids: _Ids) -> np.ndarray:
        return ids.of(self._keys)

    def years(self, ids: _Ids) -> np.ndarray:
        return ids.of(np.array([movie[1][-5:-1] for movie in self._movies]))

    def genres(self, ids: _Ids) -> np.ndarray:
        """Those of a movie, and zeros."""
        genres = [movie[2].split("|") for movie in self._movies]
        names = sorted({name for some in genres for name in some})
        of_name = dict(zip(names, ids.of(np.array(names)).tolist()))
        several = max(map(len, genres))
        return np.array(
            [[of_name[name] for name in some] + [0] * (several - len(some)) for some in genres],
            np.int32,
        )


def _lines(path: Path) -> list[list[str]]:
    """Fields of a file of GroupLens, by their keys."""
    lines = path.read_text(encoding="latin-1").splitlines()
    return sorted((line.split("::") for line in lines), key=lambda fields: int(fields[0]))


def _ratings(path: Path) -> np.ndarray:
    """Rows user, movie, rating, rank, sorted by user and rank."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return np.loadtxt(file, np.int64, delimiter=",", skiprows=1)


def _places_before(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The places in `train` of the last HISTORY rows of the same user that have a lower rank, the
    latest first, as [n, HISTORY]; -1 where there are fewer."""
    far = 1 << 20  # More than anybody has rated.
    keys = train[:, 0] * far + train[:, 3]
    end = np.searchsorted(keys, rows[:, 0] * far + rows[:, 3])
    begin = np.searchsorted(keys, rows[:, 0] * far)
    places = end[:, None] - 1 - np.arange(HISTORY)
    return np.where(places < begin[:, None], -1, places)


def planted() -> Data:
    """A small set in the shape of MovieLens: a click where the taste of a user is that of a movie,
    mostly, and most of them for some movies."""
    random = np.random.default_rng(5)
    users, movies, genres, history = 40, 30, 2, 4
    columns = Columns(1 + users + movies + genres + 2, 2, 1, history, candidate=1)
    taste, kind = random.integers(0, 2, users), random.integers(0, 2, movies)
    weight = random.normal(0.0, 1.0, movies)

    def part(count: int) -> Part:
        user, movie = random.integers(0, users, count), random.integers(0, movies, count)
        past = random.integers(0, movies, (count, history))

        def click(of: np.ndarray, what: np.ndarray) -> np.ndarray:
            logit = 3.0 * (taste[of] == kind[what]) - 1.5 + weight[what]
            return (random.random(what.shape) < 1.0 / (1.0 + np.exp(-logit))).astype(np.int32)

        how = click(np.broadcast_to(user[:, None], past.shape), past)
        shown = [user, users + movie, users + movies + kind[movie]]
        last = users + movies + genres + how
        ids = np.concatenate([1 + np.stack(shown, 1), 1 + users + past, 1 + last], axis=1)
        of_user = click(user, movie)
        return Part(ids.astype(np.int32), np.stack([of_user, of_user & (weight[movie] > 0)], 1))

    return Data(columns, part(4096), part(512), part(2048))


SETS: dict[str, Callable[[], Data]] = {
    "frappe": frappe, "movielens": movielens, "opinions": opinions, "planted": planted
}  # fmt: skip


def write_shards(part: Part, folder: Path, shards: int, writer: Any) -> list[int]:
    """A file for each worker, whose records are examples: their ids and labels. `writer`:
    io.TFRecordWriter. How many examples each has."""
    rows = np.concatenate([part.ids, part.labels], 1, dtype=np.int32)
    order = np.random.default_rng(3).permutation(len(rows))
    counts = []
    for shard in range(shards):
        mine = rows[order[shard::shards]]
        with writer(str(folder / f"{shard:04d}.tfrecord")) as file:
            for row in mine:
                file.write(row.tobytes())
        counts.append(len(mine))
    return counts


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The area under the curve, exactly: how often one of 1 is above one of 0, ties by half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * (counts - 1))[places]
    positive = float(labels.sum())
    negative = len(labels) - positive
    above = float(ranks[labels == 1].sum()) - positive * (positive + 1) / 2
    return above / (positive * negative)


def log_loss(labels: np.ndarray, logits: np.ndarray) -> float:
    """The mean of -log of what was said of the label."""
    signed = np.where(labels == 1, logits, -logits).astype(np.float64)
    return float(np.logaddexp(0.0, -signed).mean())


def bias_only(data: Data, rounds: int = 20, prior: float = 2.0) -> np.ndarray:
    """Logits for the test split of a model that knows a number for each user and each item alone:
    steps of Newton's method for these in turn, with a Gaussian prior."""
    places = 0, data.columns.candidate
    fields = [data.train.ids[:, place] for place in places]
    bias = np.zeros(data.columns.id_space)
    rate = data.train.clicks.mean()
    mean = float(np.log(rate / (1.0 - rate)))
    for _ in range(rounds):
        for field in fields:
            chance = 1.0 / (1.0 + np.exp(-(mean + bias[fields[0]] + bias[fields[1]])))
            slope = np.bincount(field, data.train.clicks - chance, len(bias))
            bend = np.bincount(field, chance * (1.0 - chance), len(bias))
            own = np.bincount(field, minlength=len(bias)) > 0
            bias += np.where(own, (slope - prior * bias) / (bend + prior), 0.0)
    return np.asarray(mean + sum(bias[data.test.ids[:, place]] for place in places))
