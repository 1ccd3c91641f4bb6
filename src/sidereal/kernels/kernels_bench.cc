// Cost of the kernels that carry a training step: products of the DeepFM tower, unique and route of
// one batch of 26 fields x 1024 ids, row gathers and updates, element-wise maps.
// One iteration is one call on one batch; items are rows, ids or elements.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/matmul.h"
#include "sidereal/kernels/nn.h"
#include "sidereal/kernels/optimizer.h"
#include "sidereal/kernels/prepared_matmul.h"
#include "sidereal/kernels/random.h"
#include "sidereal/kernels/reduce.h"
#include "sidereal/kernels/sparse.h"
#include "sidereal/kernels/thread.h"
#include "sidereal/tensor/buffer.h"

namespace sidereal::kernels {
namespace {

constexpr int64_t kIds = 26 * 1024;
constexpr int64_t kTableRows = 10'000'000;
constexpr int kBatches = 32;  // Batches drawn beforehand, so that no batch stays in a cache.

std::vector<float> values(int64_t n, uint64_t stream = 1) {
  std::vector<float> v(n);
  fill_uniform({7, stream, 0}, -1.0F, 1.0F, v.data(), n);
  return v;
}

// Uniform ids, or ids whose rank r is drawn with probability about 1 / r.
std::vector<int64_t> draw_ids(bool zipf, int64_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) {
    const double u = unit(rng);
    const double rank = zipf ? std::pow(static_cast<double>(kTableRows), u) - 1.0
                             : u * static_cast<double>(kTableRows);
    // Popular rows lie anywhere in the table.
    id = static_cast<int64_t>(static_cast<uint64_t>(rank) * 2654435761U % kTableRows);
  }
  return ids;
}

void mat_mul_form(benchmark::State& state) {
  prepare_thread();
  const MatMulDims dims{state.range(0), state.range(1), state.range(2), state.range(3) != 0,
                        state.range(4) != 0};
  const std::vector<float> a = values(dims.m * dims.k, 1);
  const std::vector<float> b = values(dims.k * dims.n, 2);
  std::vector<float> out(dims.m * dims.n);
  for (auto _ : state) {
    mat_mul(a.data(), b.data(), out.data(), dims);
    benchmark::ClobberMemory();
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(dims.m * dims.k * dims.n),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(mat_mul_form)
    ->ArgNames({"m", "k", "n", "ta", "tb"})
    ->Args({1024, 416, 400, 0, 0})
    ->Args({416, 1024, 400, 1, 0})
    ->Args({1024, 400, 416, 0, 1})
    ->Args({1024, 400, 400, 0, 0})
    ->Args({400, 1024, 400, 1, 0})
    ->Args({1024, 400, 400, 0, 1})
    ->Args({1024, 400, 1, 0, 0})
    ->Args({400, 1024, 1, 1, 0})
    ->Args({1024, 1, 400, 0, 1})
    ->Args({32, 416, 400, 0, 0});

void bfloat_mat_mul_form(benchmark::State& state) {
  prepare_thread();
  if (!has_bfloat_units()) return state.SkipWithError("no bfloat16 units");
  PreparedMatMul product;
  const PreparedMatMul::Form form{.dims = {state.range(0), state.range(1), state.range(2),
                                           state.range(3) != 0, state.range(4) != 0},
                                  .in = tensor::DType::kBFloat16};
  const MatMulDims& dims = form.dims;
  const auto scratch = tensor::Buffer::allocate(product.prepare(form));
  const std::vector<tensor::BFloat16> a(dims.m * dims.k, tensor::BFloat16(1.5F));
  const std::vector<tensor::BFloat16> b(dims.k * dims.n, tensor::BFloat16(-0.75F));
  std::vector<float> out(dims.m * dims.n);
  for (auto _ : state) {
    product.run(a.data(), b.data(), nullptr, out.data(), scratch->data());
    benchmark::ClobberMemory();
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(dims.m * dims.k * dims.n),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(bfloat_mat_mul_form)
    ->ArgNames({"m", "k", "n", "ta", "tb"})
    ->Args({1024, 416, 400, 0, 0})
    ->Args({416, 1024, 400, 1, 0})
    ->Args({1024, 400, 416, 0, 1})
    ->Args({1024, 400, 400, 0, 0})
    ->Args({400, 1024, 400, 1, 0})
    ->Args({1024, 400, 400, 0, 1})
    ->Args({1024, 400, 1, 0, 0});

void unique_ids(benchmark::State& state) {
  std::vector<std::vector<int64_t>> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(draw_ids(state.range(0) != 0, kIds, i));
  UniqueScratch scratch;
  std::vector<int64_t> out(kIds);
  std::vector<int32_t> inverse(kIds);
  int at = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(unique(batches[at], scratch, out.data(), inverse.data()));
    at = (at + 1) % kBatches;
  }
  state.SetItemsProcessed(state.iterations() * kIds);
}
BENCHMARK(unique_ids)->ArgName("zipf")->Arg(0)->Arg(1);

void route_ids(benchmark::State& state) {
  const std::vector<int64_t> ids = draw_ids(false, kIds, 1);
  const ShardLayout layout(kTableRows, static_cast<int32_t>(state.range(0)),
                           static_cast<int32_t>(state.range(1)));
  std::vector<int64_t> rows(kIds);
  std::vector<int64_t> position(kIds);
  std::vector<int64_t> offsets(layout.num_shards() + 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(route(ids, layout, rows.data(), offsets.data(), position.data()));
  }
  state.SetItemsProcessed(state.iterations() * kIds);
}
BENCHMARK(route_ids)->ArgNames({"tasks", "lanes"})->Args({1, 1})->Args({1, 2})->Args({3, 2});

void gather_and_sum_parts(benchmark::State& state) {
  const bool sum = state.range(0) != 0;
  const std::vector<int64_t> ids = draw_ids(state.range(1) != 0, kIds, 1);
  std::vector<int64_t> distinct(kIds);
  std::vector<int32_t> inverse(kIds);
  UniqueScratch scratch;
  const int64_t n = unique(ids, scratch, distinct.data(), inverse.data());
  const ShardLayout layout(kTableRows, 2, 1);
  std::vector<int64_t> rows(n);
  std::vector<int64_t> position(n);
  std::vector<int64_t> offsets(3);
  route({distinct.data(), static_cast<size_t>(n)}, layout, rows.data(), offsets.data(),
        position.data());
  std::vector<float> part0(offsets[1] * 16);
  std::vector<float> part1((offsets[2] - offsets[1]) * 16);
  std::vector<float> batch(kIds * 16);
  const float* parts[] = {part0.data(), part1.data()};
  float* sums[] = {part0.data(), part1.data()};
  for (auto _ : state) {
    if (sum) {
      sum_parts<float>(batch.data(), 16, position, inverse, 16, sums);
    } else {
      gather_parts<float>(parts, position, inverse, 16, batch.data());
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kIds);
}
BENCHMARK(gather_and_sum_parts)
    ->ArgNames({"sum", "zipf"})
    ->Args({0, 0})
    ->Args({0, 1})
    ->Args({1, 0})
    ->Args({1, 1});

// The rule of number `rule` of the table, of n weights, which are one array or rows of 16 of a
// table.
void update_weights(benchmark::State& state) {
  prepare_thread();
  const UpdateRule rule = UpdateRule::of(all_rules()[state.range(0)]->name, {});
  const bool of_rows = state.range(1) != 0;
  const int64_t n = state.range(2);
  constexpr int64_t kDim = 16;
  const std::vector<float> grad = values(n, 2);
  std::vector<float> table(rule.row_floats(kDim) * (n / kDim));
  for (float& value : table) value = 0.1F;
  DenseUpdate<float> update;
  update.w_in = update.w_out = table.data();
  for (int i = 0; i < rule.num_slots(); ++i) update.slots[i] = table.data() + (i + 1) * n;
  update.grad = grad.data();
  update.n = n;
  update.row = kDim;
  const RuleArrays<float> rows = arrays_of_rows(rule, table.data(), rule.row_floats(kDim), kDim);
  std::vector<int64_t> order(n / kDim);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  const RuleStep step = {.rule = &rule, .step = 3, .learning_rate = 1e-4};
  for (auto _ : state) {
    if (of_rows) {
      apply_rows<float>(step, rows, order, {.data = grad.data()}, kDim);
    } else {
      apply_dense(step, update);
    }
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(rule.rule().name));
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(update_weights)
    ->ArgNames({"rule", "rows", "n"})
    ->ArgsProduct({benchmark::CreateDenseRange(0, 15, 1), {0, 1}, {400 * 416}})
    ->Args({2, 0, 10'000'000});

void map_elements(benchmark::State& state) {
  prepare_thread();
  const auto op = static_cast<UnaryOp>(state.range(0));
  const std::vector<float> in = values(16384);
  std::vector<float> out(in.size());
  for (auto _ : state) {
    unary(op, in.data(), out.data(), static_cast<int64_t>(in.size()));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(in.size()));
}
BENCHMARK(map_elements)
    ->ArgName("op")
    ->Arg(static_cast<int>(UnaryOp::kExp))
    ->Arg(static_cast<int>(UnaryOp::kLog))
    ->Arg(static_cast<int>(UnaryOp::kLog1p))
    ->Arg(static_cast<int>(UnaryOp::kSigmoid))
    ->Arg(static_cast<int>(UnaryOp::kTanh))
    ->Arg(static_cast<int>(UnaryOp::kRelu))
    ->Arg(static_cast<int>(UnaryOp::kSqrt))
    ->Arg(static_cast<int>(UnaryOp::kSoftplus));

void bias_relu(benchmark::State& state) {
  std::vector<float> x = values(1024 * 400);
  const std::vector<float> bias = values(400);
  std::vector<float> out(x.size());
  for (auto _ : state) {
    bias_add_relu(x.data(), bias.data(), out.data(), 1024, 400);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(x.size()));
}
BENCHMARK(bias_relu);

void bias_gradient(benchmark::State& state) {
  const std::vector<float> x = values(1024 * 400);
  std::vector<float> out(400);
  for (auto _ : state) {
    bias_grad(x.data(), 1024, 400, out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(x.size()));
}
BENCHMARK(bias_gradient);

void sum_all(benchmark::State& state) {
  const std::vector<float> x = values(1024 * 400);
  for (auto _ : state) benchmark::DoNotOptimize(sum(x.data(), static_cast<int64_t>(x.size())));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(x.size()));
}
BENCHMARK(sum_all);

void fm(benchmark::State& state) {
  const FmDims dims{1024, 26, 16};
  const std::vector<float> v = values(kIds * 16);
  std::vector<float> out(1024, 1.0F);
  std::vector<float> grad(v.size());
  for (auto _ : state) {
    if (state.range(0) == 0) {
      fm_interaction(v.data(), dims, out.data());
    } else {
      fm_interaction_grad(out.data(), v.data(), dims, grad.data());
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(v.size()));
}
BENCHMARK(fm)->ArgName("grad")->Arg(0)->Arg(1);

void drop(benchmark::State& state) {
  const std::vector<float> x = values(1024 * 400);
  std::vector<float> out(x.size());
  uint64_t step = 0;
  for (auto _ : state) {
    dropout(x.data(), 0.5, {7, ++step}, out.data(), static_cast<int64_t>(x.size()));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(x.size()));
}
BENCHMARK(drop);

void random_values(benchmark::State& state) {
  std::vector<float> out(65536);
  const auto n = static_cast<int64_t>(out.size());
  for (auto _ : state) {
    switch (state.range(0)) {
      case 0:
        fill_uniform({1, 2, 3}, -1.0F, 1.0F, out.data(), n);
        break;
      case 1:
        fill_normal({1, 2, 3}, 0.0F, 1.0F, out.data(), n);
        break;
      default:
        fill_truncated_normal({1, 2, 3}, 0.0F, 1.0F, out.data(), n);
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(random_values)->ArgName("uniform_normal_truncated")->Arg(0)->Arg(1)->Arg(2);

}  // namespace
}  // namespace sidereal::kernels
