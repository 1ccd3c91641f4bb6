"""Tables in training: offload(), prefetch(), autocast, torch.compile, schedules, several processes,
checkpoints, and what goes wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from session_servers import PATIENCE_S, Processes, addresses, output_of
from torch_servers import PROTOCOLS, ParameterServers, jagged, servers_fixture, st, torch

import sidereal as sr

cluster = servers_fixture(*((2, name) for name in PROTOCOLS))
nn = torch.nn


def tables_of(cluster: Any, rows: int = 20, dim: int = 4, rate: float = 0.5, **options: Any) -> Any:
    config = st.EmbeddingBagConfig(rows, dim, "t", ["f"])
    options.setdefault("optimizer", st.optim.SGD(rate))
    return st.EmbeddingBagCollection([config], cluster=cluster, **options)


class Model(nn.Module):
    def __init__(self, tables: Any, dim: int = 4) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.tables = tables
        self.dense = nn.Linear(dim, 1)

    def forward(self, batch: Any) -> Any:
        return self.dense(self.tables(batch).values()).squeeze(1)


def peer_of(model: Model) -> tuple[Any, Any]:
    """The same table and dense part in this process."""
    table = model.tables.read_rows("t").requires_grad_()
    dense = nn.Linear(model.dense.in_features, 1)
    dense.load_state_dict(model.dense.state_dict())
    return table, dense


BAGS = [[[1, 2, 2], [], [3]], [[2], [2, 1], [19]], [[0], [19, 19], [7]]]


def batches() -> list[Any]:
    return [jagged({"f": bags}) for bags in BAGS]


def bag(table: Any, batch: Any) -> Any:
    part = batch["f"]
    return nn.functional.embedding_bag(
        part.values(), table, part.offsets(), mode="sum", include_last_offset=True
    )


# --- offload()


class Old(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words = nn.Embedding(30, 4, padding_idx=0)
        self.bags = nn.ModuleList([nn.EmbeddingBag(9, 3, mode=m) for m in ("sum", "max", "mean")])
        self.padded = nn.EmbeddingBag(9, 4, mode="mean", padding_idx=2)
        self.tiny = nn.Embedding(2, 4)
        self.dense = nn.Linear(4, 1)

    def forward(self, ids: Any) -> Any:
        one = self.dense(self.words(ids)).sum() + self.tiny(ids % 2).sum()
        two = sum((bag(ids % 9).sin() * (i + 1)).sum() for i, bag in enumerate(self.bags))
        flat, offsets = (ids % 9).reshape(-1), torch.arange(0, ids.numel(), ids.shape[1])
        return one + two + self.padded(flat, offsets).cos().sum()


def test_offloaded_modules_go_on_as_they_would_have(cluster: Any) -> None:
    theirs, ours = Old(), Old()
    before = {name: one.clone() for name, one in ours.state_dict().items()}
    made = st.offload(ours, cluster=cluster, optimizer=st.optim.SGD(0.1), min_rows=3)
    assert made is ours
    assert isinstance(ours.words, st.Embedding)
    assert isinstance(ours.bags[1], st.EmbeddingBag)
    assert isinstance(ours.tiny, nn.Embedding)
    assert list(ours.state_dict()) == ["tiny.weight", "dense.weight", "dense.bias"]
    for name in ("words", "bags.0", "padded"):
        assert torch.equal(ours.get_submodule(name).weight, before[f"{name}.weight"])
    with torch.no_grad():
        torch.testing.assert_close(ours(torch.tensor([[1]])), theirs(torch.tensor([[1]])))
    optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (theirs, ours)]
    for step in range(3):
        ids = (torch.arange(12).view(3, 4) ** 2 + step) % 30
        losses = [one(ids) for one in (theirs, ours)]
        torch.testing.assert_close(*losses, rtol=1e-6, atol=1e-5)
        for optimizer, loss in zip(optimizers, losses):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for name in ("words", "bags.0", "bags.1", "bags.2", "padded", "tiny", "dense"):
        torch.testing.assert_close(
            ours.get_submodule(name).weight, theirs.get_submodule(name).weight, rtol=1e-6,
            atol=1e-5,
        )  # fmt: skip
    ours.words.close()


def test_offload_refuses_what_it_cannot_do(cluster: Any) -> None:
    tied = nn.Sequential(nn.Embedding(5, 5), nn.Linear(5, 5, bias=False))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="the weight of '0' is also 1.weight"):
        st.offload(tied, cluster=cluster)
    with pytest.raises(sr.errors.UnimplementedError, match="'0' has max_norm=1.0"):
        st.offload(nn.Sequential(nn.Embedding(5, 5, max_norm=1.0)), cluster=cluster)
    with pytest.raises(ValueError, match="Linear has no nn.Embedding"):
        st.offload(nn.Linear(2, 2), cluster=cluster)


# --- Steps


def test_batches_pulled_ahead_lack_the_pushes_of_as_many_steps(cluster: Any) -> None:
    for depth in (0, 1, 2):
        model = Model(tables_of(cluster))
        table, _ = peer_of(model)
        states = [table.detach().clone()]
        data = [jagged({"f": [[1, 2]]}) for _ in range(5)]
        for step, batch in enumerate(st.prefetch(data, model, depth)):
            for one in data:  # What was asked for is there, before anything is pushed.
                for started in one.__dict__.get("_sidereal_started", {}).values():
                    started.pull.rows()
            found = model.tables(batch).values()
            seen = states[max(0, step - depth)]
            torch.testing.assert_close(found, seen[[1, 2]].sum(0, keepdim=True))
            found.sum().backward()
            model.tables.flush()
            states.append(model.tables.read_rows("t"))
        assert step == 4
        torch.testing.assert_close(states[-1][1], states[0][1] - 2.5)
        model.tables.close()
    with pytest.raises(ValueError, match="Linear has no EmbeddingBagCollection"):
        st.prefetch([], nn.Linear(1, 1))


def test_prefetch_finds_features_in_batches(cluster: Any) -> None:
    model = Model(tables_of(cluster))
    pairs = [{"x": batch, "y": torch.ones(3)} for batch in batches()]
    seen = list(st.prefetch(pairs, model, 5))
    assert [one["x"] for one in seen] == [one["x"] for one in pairs]
    assert all(one["x"].__dict__["_sidereal_started"] for one in seen)
    with pytest.raises(ValueError, match="give features="):
        list(st.prefetch([torch.ones(2)], model))
    hidden = [((batch,),) for batch in batches()]
    assert len(list(st.prefetch(hidden, model, 1, lambda batch: batch[0][0]))) == 3
    model.tables.close()


def test_autocast_and_compile_around_tables(cluster: Any) -> None:
    model = Model(tables_of(cluster, optimizer=st.optim.Adagrad(0.1)))
    table, dense = peer_of(model)
    optimizer = torch.optim.Adagrad([table], 0.1)
    compiled = torch.compile(model, backend="aot_eager")
    for batch in batches():
        with torch.autocast("cpu", torch.bfloat16):
            found = compiled(batch)
            wanted = dense(bag(table, batch)).squeeze(1)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found, wanted)
        optimizer.zero_grad()
        wanted.float().square().sum().backward()
        found.float().square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(
        model.tables.read_rows("t"), table.detach(), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(model.dense.weight.grad, dense.weight.grad, rtol=1e-5, atol=1e-5)
    model.tables.close()


def test_scaled_losses_push_gradients_as_they_are(cluster: Any) -> None:
    tables = tables_of(cluster, rate=1.0)
    tables.grad_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = tables.read_rows("t")
    batch = jagged({"f": [[3]]})
    tables.grad_scaler.scale(tables(batch).values().sum()).backward()
    torch.testing.assert_close(tables.read_rows("t")[3], before[3] - 1)
    (tables(batch).values().sum() * float("inf")).backward()
    torch.testing.assert_close(tables.read_rows("t")[3], before[3] - 1)
    tables.close()


def test_schedules_change_the_rate_of_tables(cluster: Any) -> None:
    tables = tables_of(cluster, rate=1.0)
    before = tables.read_rows("t")
    schedule = torch.optim.lr_scheduler.StepLR(tables.fused_optimizer, 1, 0.5)
    for _ in range(2):
        tables(jagged({"f": [[3]]})).values().sum().backward()
        tables.fused_optimizer.step()
        schedule.step()
    torch.testing.assert_close(tables.read_rows("t")[3], before[3] - 1.5)
    tables.close()


def test_tables_without_an_optimizer_do_not_change(cluster: Any) -> None:
    tables = tables_of(cluster, optimizer=None)
    before = tables.read_rows("t")
    tables(jagged({"f": [[3]]})).values().sum().backward()
    assert torch.equal(tables.read_rows("t"), before)
    with pytest.raises(sr.errors.FailedPreconditionError, match="no optimizer"):
        _ = tables.fused_optimizer
    tables.close()


def test_optimizers_of_sidereal_serve_too(cluster: Any) -> None:
    tables = tables_of(cluster, optimizer=sr.optimizers.RowWiseAdagrad(0.1))
    before = tables.read_rows("t")
    tables(jagged({"f": [[3]]})).values().sum().backward()
    after = tables.read_rows("t")
    assert torch.equal(after[4], before[4])
    assert (after[3] < before[3]).all()
    tables.close()
    with pytest.raises(TypeError, match="tables take a number"):
        schedule = sr.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
        tables_of(cluster, optimizer=sr.optimizers.SGD(schedule))


def test_first_values_are_as_configs_say(cluster: Any) -> None:
    def fill(values: Any) -> Any:
        return values.copy_(torch.arange(values.numel()).view_as(values))

    configs = [
        st.EmbeddingBagConfig(100, 4, "a", ["a"]),
        st.EmbeddingBagConfig(50, 4, "b", ["b"], 3.0, 2.0),
        st.EmbeddingBagConfig(5, 4, "c", ["c"], init_fn=fill),
    ]
    one, two = (st.EmbeddingBagCollection(configs, cluster=cluster, seed=9) for _ in range(2))
    assert torch.equal(one.read_rows("c"), torch.arange(20.0).view(5, 4))
    a, b = one.read_rows("a"), one.read_rows("b")
    assert 0.09 < a.abs().max() <= 0.1
    assert 2 <= b.min() < b.max() <= 3
    assert torch.equal(two.read_rows("a"), a)  # The seed decides.
    assert torch.equal(one.read_rows("b", torch.tensor([7, 0, 7])), b[[7, 0, 7]])
    two.write_rows("a", torch.ones(3, 4), begin=97)
    assert torch.equal(two.read_rows("a"), torch.cat([a[:97], torch.ones(3, 4)]))
    assert torch.equal(one.read_rows("a"), a)  # Tables of another name are others.
    with pytest.raises(sr.errors.InvalidArgumentError, match="no rows 99 and following of"):
        two.write_rows("a", torch.ones(3, 4), begin=99)
    one.close()
    two.close()


def test_processes_that_say_one_name_have_one_table(cluster: Any) -> None:
    first = tables_of(cluster, name="common", rate=1.0)
    second = tables_of(cluster, name="common", rate=1.0)
    before = first.read_rows("t")
    assert torch.equal(second.read_rows("t"), before)
    for one in (first, second):
        one(jagged({"f": [[3]]})).values().sum().backward()
        one.flush()
    torch.testing.assert_close(first.read_rows("t")[3], before[3] - 2)
    first.close()
    torch.testing.assert_close(second.read_rows("t")[3], before[3] - 2)
    second.close()


# --- Checkpoints


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_checkpoints_are_restored_to_any_number_of_servers(
    cluster: Any, tmp_path: Path, parts: int
) -> None:
    model = Model(tables_of(cluster, optimizer=st.optim.Adam(0.1)))
    dense = torch.optim.Adam(model.dense.parameters(), 0.1)

    def train(model: Any, dense: Any, data: list[Any]) -> None:
        for batch in data:
            dense.zero_grad()
            model(batch).square().sum().backward()
            dense.step()

    train(model, dense, batches())
    st.save(tmp_path, model, dense, {"step": 3})
    files = sorted(file.name for file in tmp_path.iterdir())
    saved = model.tables.read_rows("t")
    prefix = json.loads((tmp_path / "MANIFEST.json").read_text())["tables"][0]["prefix"]
    theirs = sr.train.load_variable(str(tmp_path / prefix), "tables_4")
    assert torch.equal(torch.tensor(theirs), saved)

    servers = ParameterServers(parts)
    other = Model(tables_of(servers.cluster, optimizer=st.optim.Adam(0.1)))
    again = torch.optim.Adam(other.dense.parameters(), 0.1)
    assert st.load(tmp_path, other, again) == {"step": 3}
    assert torch.equal(other.tables.read_rows("t"), saved)
    for one, optimizer in ((model, dense), (other, again)):
        train(one, optimizer, batches())
    torch.testing.assert_close(
        other.tables.read_rows("t"), model.tables.read_rows("t"), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(other.dense.weight, model.dense.weight, rtol=1e-6, atol=1e-6)
    st.save(tmp_path, other, again)
    left = sorted(file.name for file in tmp_path.iterdir())
    assert not (set(left) - {"MANIFEST.json"}) & set(files)  # The one before is gone.
    other.tables.close()
    model.tables.close()
    servers.stop()


def test_checkpoints_that_are_not_whole_are_refused(cluster: Any, tmp_path: Path) -> None:
    model = Model(tables_of(cluster))
    with pytest.raises(sr.errors.NotFoundError, match="no checkpoint"):
        st.load(tmp_path, model)
    st.save(tmp_path, model)
    other = Model(tables_of(cluster, rows=21))
    before = other.tables.read_rows("t")
    with pytest.raises(sr.errors.InvalidArgumentError, match="other tables for module 'tables'"):
        st.load(tmp_path, other)
    assert torch.equal(other.tables.read_rows("t"), before)
    with pytest.raises(sr.errors.InvalidArgumentError, match="no optimizer"):
        st.load(tmp_path, model, torch.optim.SGD(model.parameters(), 0.1))
    dense = next(tmp_path.glob("dense-*"))
    dense.write_bytes(dense.read_bytes()[:-1] + b"x")
    with pytest.raises(sr.errors.DataLossError, match="is damaged"):
        st.load(tmp_path, model)
    dense.unlink()
    with pytest.raises(sr.errors.NotFoundError, match="is missing"):
        st.load(tmp_path, model)
    for one in (model, other):
        one.tables.close()


# --- Errors


def test_errors_name_tables_and_features(cluster: Any) -> None:
    tables = tables_of(cluster)
    with pytest.raises(sr.errors.InvalidArgumentError, match="feature 'f' has id 20; table 't'"):
        tables(jagged({"f": [[1], [20]]}))
    with pytest.raises(sr.errors.InvalidArgumentError, match="feature 'f' has id -1; table 't'"):
        tables(jagged({"f": [[-1], [2]]}))
    with pytest.raises(sr.errors.InvalidArgumentError, match="ids of features 'f' are float32"):
        tables(jagged({"f": [[1]]}, dtype=torch.float32))
    with pytest.raises(sr.errors.InvalidArgumentError, match="no feature 'f'; it has 'g'"):
        tables(jagged({"g": [[1]]}))
    with pytest.raises(sr.errors.NotFoundError, match="no table is called 'x'; there are 't'"):
        tables.read_rows("x")
    assert tables(jagged({"f": [[1], [2]]}, dtype=torch.int32)).values().shape == (2, 4)
    tables.close()
    with pytest.raises(sr.errors.FailedPreconditionError, match="are closed"):
        tables(jagged({"f": [[1]]}))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_lost_parameter_server_is_an_error_that_names_it(protocol: str) -> None:
    processes = Processes()
    where = {"ps": addresses(2)}
    servers = [
        processes.serve(where, "ps", task, "--protocol", protocol) for task in range(2)
    ]
    try:
        tables = tables_of(where, timeout_s=PATIENCE_S)
        found = tables(jagged({"f": [[1], [2]]})).values()
        servers[1].kill()
        servers[1].wait()
        lost = (sr.errors.UnavailableError, sr.errors.AbortedError)
        found.sum().backward()  # Not waited for: the next step says what became of it.
        with pytest.raises(lost, match="a push of tables 't' on /job:ps/task:1") as met:
            tables(jagged({"f": [[1]]}))
        assert where["ps"][1] in str(met.value)
        with pytest.raises(lost, match="a pull of tables 't' on /job:ps/task:1"):
            tables(jagged({"f": [[1], [2]]}))
        tables.close()
    finally:
        processes.end()


# --- Several processes

TRAINER = """
import sys
import torch
from torch import distributed, nn
import sidereal.torch as st

rank, port, ps = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
distributed.init_process_group(
    "gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=2
)
tables = st.EmbeddingBagCollection(
    [st.EmbeddingBagConfig(20, 4, "t", ["f"])], cluster={"ps": [ps]},
    optimizer=st.optim.SGD(1.0), seed=rank,
)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables, self.dense = tables, nn.Linear(4, 1)

    def forward(self, batch):
        return self.dense(self.tables(batch).values())


before = tables.read_rows("t")
seen = [None, None]
distributed.all_gather_object(seen, before)
assert torch.equal(*seen)
model = nn.parallel.DistributedDataParallel(Model())
batch = st.KeyedJaggedTensor(["f"], torch.tensor([3, 5 + rank]), lengths=torch.tensor([1, 1]))
loss = model(batch).sum()
distributed.barrier()  # Both have read before one pushes.
loss.backward()
tables.flush()
distributed.barrier()
weight = model.module.dense.weight.detach()[0]
after = tables.read_rows("t")
torch.testing.assert_close(after[3], before[3] - 2 * weight)
torch.testing.assert_close(after[[5, 6]], before[[5, 6]] - weight)
mean = (2 * before[3] + before[5] + before[6]) / 2
torch.testing.assert_close(model.module.dense.weight.grad[0], mean)
distributed.barrier()
tables.close()
distributed.destroy_process_group()
print("done")
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ddp_has_the_dense_part_and_the_servers_the_tables(tmp_path: Path, protocol: str) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER)
    processes = Processes()
    port, ps = (address.rpartition(":")[2] for address in addresses(2))
    try:
        processes.serve({"ps": [f"localhost:{ps}"]}, "ps", 0, "--protocol", protocol)
        ranks = [
            processes._start([sys.executable, script, rank, port, f"localhost:{ps}"])
            for rank in range(2)
        ]
        assert [output_of(rank).strip() for rank in ranks] == ["done", "done"]
    finally:
        processes.end()


def test_the_cluster_is_the_one_of_tf_config(monkeypatch: Any) -> None:
    servers = ParameterServers(1)
    config = {
        "cluster": {**servers.cluster, "worker": ["localhost:1", "localhost:2"]},
        "task": {"type": "worker", "index": 1},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(sr.errors.DeadlineExceededError, match="were not made by the first"):
        tables_of(None, name="shared", timeout_s=2)
    config["task"]["index"] = 0
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    first = tables_of(None, name="shared")
    config["task"]["index"] = 1
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    second = tables_of(None, name="shared")
    assert torch.equal(first.read_rows("t"), second.read_rows("t"))
    for one in (first, second):
        one.close()
    servers.stop()


