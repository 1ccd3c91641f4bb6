"""Trains a click model on CSV files: train_csv.py TRAIN... [--test FILE] [--model deepfm] ...

Without files, writes small ones into a temporary folder first and trains on those.
"""

import argparse
import csv
import random
import tempfile
from pathlib import Path

import sidereal as sr


def write_clicks(path: Path, rows: int, seed: int) -> None:
    """Clicks that depend on the hour and on whether site and advert share a topic."""
    rng = random.Random(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["click", "hour", "site", "advert"])
        for _ in range(rows):
            hour, site, advert = rng.random(), rng.randrange(20), rng.randrange(20)
            chance = 0.1 + 0.2 * hour + (0.5 if site % 5 == advert % 5 else 0.0)
            writer.writerow([int(rng.random() < chance), f"{hour:.4f}", f"s{site}", f"a{advert}"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="training files, plain or gzip; patterns allowed")
    parser.add_argument("--test", help="rows to evaluate on after training")
    parser.add_argument("--label", default="click")
    parser.add_argument("--numeric", nargs="*", default=["hour"], help="columns that are numbers")
    parser.add_argument("--model", default="deepfm", choices=sr.models.names())
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


def train(arguments: argparse.Namespace) -> None:
    def read(*files: str) -> sr.data.DataSpec:
        return sr.data.csv(
            *files, label=arguments.label, numeric=arguments.numeric, hash_buckets=1000
        )

    data = read(*arguments.files)
    model = sr.models.build(
        arguments.model, data, embedding_dim=8, hidden=[32, 32],
        optimizer=sr.optimizers.Adam(0.02), seed=7,
    )
    print(model)
    with sr.LocalCluster(ps=2, workers=arguments.workers) as cluster:
        model.fit(data, cluster=cluster, epochs=arguments.epochs, batch_size=128)
        print(model.evaluate(read(arguments.test) if arguments.test else data))


def main() -> None:
    arguments = parse_arguments()
    if arguments.files:
        train(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        for part in range(3):
            write_clicks(Path(folder, f"clicks_{part}.csv"), rows=5000, seed=part)
        arguments.files = [str(Path(folder, "clicks_[01].csv"))]
        arguments.test = str(Path(folder, "clicks_2.csv"))
        train(arguments)


if __name__ == "__main__":
    main()
