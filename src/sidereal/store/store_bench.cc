// Pull and push of one batch, 26 fields x 1024 rows, against one shard of 10 million rows. One
// iteration is one call with fresh row numbers; items are rows. Rows are distinct within a call, as
// unique() leaves them; skewed means drawn with probability about 1 / rank before unique().
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/kernels/thread.h"
#include "sidereal/store/dense_variable.h"
#include "sidereal/store/embedding_shard.h"

namespace sidereal::store {
namespace {

constexpr int64_t kTableRows = 10'000'000;
constexpr int64_t kIds = 26 * 1024;
constexpr int kBatches = 32;

std::vector<int64_t> draw_rows(bool skewed, bool distinct, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  std::vector<int64_t> ids(kIds);
  for (int64_t& id : ids) {
    const double u = unit(rng);
    const double rank = skewed ? std::pow(static_cast<double>(kTableRows), u) - 1.0
                               : u * static_cast<double>(kTableRows);
    id = static_cast<int64_t>(static_cast<uint64_t>(rank) * 2654435761U % kTableRows);
  }
  if (!distinct) return ids;
  kernels::UniqueScratch scratch;
  std::vector<int64_t> rows(kIds);
  std::vector<int32_t> inverse(kIds);
  rows.resize(kernels::unique(ids, scratch, rows.data(), inverse.data()));
  return rows;
}

std::unique_ptr<EmbeddingShard> make_table(const UpdateRule& rule, int64_t dim) {
  EmbeddingOptions options;
  options.name = "table";
  options.layout = kernels::ShardLayout(kTableRows, 1, 1);
  options.dim = dim;
  options.rule = rule;
  options.initializer = {Initializer::Kind::kUniform, -0.01F, 0.01F, 7, 1};
  auto table = EmbeddingShard::create(std::move(options));
  SR_CHECK(table.ok());
  return std::move(table).value();
}

std::vector<std::vector<int64_t>> draw_batches(bool skewed, bool distinct) {
  std::vector<std::vector<int64_t>> batches;
  for (int i = 0; i < kBatches; ++i) {
    batches.push_back(draw_rows(skewed, distinct, static_cast<uint64_t>(i)));
  }
  return batches;
}

void gather(benchmark::State& state) {
  kernels::prepare_thread();
  const UpdateRule rule = state.range(2) != 0 ? UpdateRule::of("adagrad", {{"learning_rate", 0.01}})
                                              : UpdateRule::of("sgd", {{"learning_rate", 0.1}});
  const auto table = make_table(rule, state.range(0));
  const auto batches = draw_batches(state.range(1) != 0, state.range(3) != 0);
  std::vector<float> out(kIds * state.range(0));
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const std::vector<int64_t>& batch = batches[at++ % kBatches];
    const Status status = table->gather(batch, out.data());
    benchmark::DoNotOptimize(status);
    benchmark::ClobberMemory();
    rows += static_cast<int64_t>(batch.size());
  }
  state.SetItemsProcessed(rows);
  state.SetBytesProcessed(rows * state.range(0) * 4);
}
BENCHMARK(gather)
    ->ArgNames({"dim", "skewed", "slots", "distinct"})
    ->Args({16, 0, 0, 1})
    ->Args({16, 0, 1, 1})
    ->Args({16, 1, 0, 0})
    ->Args({16, 1, 1, 0})
    ->Args({16, 1, 1, 1})
    ->Args({64, 0, 0, 1})
    ->Args({1, 0, 1, 1});

void apply(benchmark::State& state) {
  kernels::prepare_thread();
  const int64_t dim = state.range(0);
  const UpdateRule rule = state.range(2) == 0 ? UpdateRule::of("adagrad", {{"learning_rate", 0.01}})
                          : state.range(2) == 1 ? UpdateRule::of("adam", {{"learning_rate", 0.001}})
                                                : UpdateRule::of("sgd", {{"learning_rate", 0.1}});
  const auto table = make_table(rule, dim);
  const auto batches = draw_batches(state.range(1) != 0, state.range(3) != 0);
  const std::vector<float> grads(kIds * dim, 1e-3F);
  size_t at = 0;
  int64_t rows = 0;
  for (auto _ : state) {
    const std::vector<int64_t>& batch = batches[at++ % kBatches];
    const Status status = table->apply(batch, grads.data());
    benchmark::DoNotOptimize(status);
    rows += static_cast<int64_t>(batch.size());
  }
  state.SetItemsProcessed(rows);
  state.SetBytesProcessed(rows * dim * 4);
}
BENCHMARK(apply)
    ->ArgNames({"dim", "skewed", "rule", "distinct"})
    ->Args({16, 0, 0, 1})
    ->Args({16, 1, 0, 0})
    ->Args({16, 1, 0, 1})
    ->Args({16, 0, 1, 1})
    ->Args({16, 0, 2, 1})
    ->Args({1, 0, 0, 1});

void dense_apply(benchmark::State& state) {
  kernels::prepare_thread();
  DenseOptions options;
  options.name = "kernel";
  options.shape = {416, 400};
  options.rule = UpdateRule::of("adagrad", {{"learning_rate", 0.01}});
  const auto variable = DenseVariable::create(std::move(options)).value();
  const tensor::Tensor grad = tensor::Tensor::zeros(tensor::DType::kFloat32, {416, 400});
  tensor::Tensor held;
  for (auto _ : state) {
    if (state.range(0) != 0) held = variable->read();
    benchmark::DoNotOptimize(variable->apply(grad));
  }
  state.SetItemsProcessed(state.iterations() * 416 * 400);
}
BENCHMARK(dense_apply)->ArgName("held")->Arg(0)->Arg(1);

void create_table(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(make_table(UpdateRule::of("adagrad", {{"learning_rate", 0.01}}), 16));
  state.SetItemsProcessed(state.iterations() * kTableRows);
}
BENCHMARK(create_table)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sidereal::store
