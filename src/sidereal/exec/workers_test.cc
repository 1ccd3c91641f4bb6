#include "sidereal/exec/workers.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <numeric>
#include <thread>
#include <vector>

#include "sidereal/exec/product.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/tensor/half.h"

namespace sidereal::exec {
namespace {

using ir::AttrMap;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

TEST(Workers, do_every_part_once) {
  for (const int threads : {1, 2, 3, 7}) {
    Workers workers(threads);
    EXPECT_EQ(workers.threads(), threads);
    for (const int64_t parts : {0, 1, 2, 5, 1000}) {
      std::vector<int> done(static_cast<size_t>(parts), 0);
      workers.run(parts, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
      EXPECT_EQ(std::accumulate(done.begin(), done.end(), int64_t{0}), parts);
      for (const int times : done) EXPECT_EQ(times, 1);
    }
  }
}

TEST(Workers, see_what_was_written_before_and_show_what_they_wrote) {
  Workers workers(3);
  std::vector<int64_t> values(64, 0);
  for (int64_t round = 1; round <= 3000; ++round) {
    workers.run(64, [&](int64_t i) { values[static_cast<size_t>(i)] += round; });
  }
  for (const int64_t value : values) EXPECT_EQ(value, 3000 * 3001 / 2);
}

TEST(Workers, round_as_the_caller_does) {
  Workers workers(4);
  std::fesetround(FE_UPWARD);
  std::vector<int> modes(400, -1);
  workers.run(400, [&](int64_t i) { modes[static_cast<size_t>(i)] = std::fegetround(); });
  std::fesetround(FE_TONEAREST);
  for (const int mode : modes) EXPECT_EQ(mode, FE_UPWARD);
}

/// One op of a program of its own on inputs that are all alike in every run.
struct Case {
  std::string op;
  std::vector<Shape> shapes;
  AttrMap attrs = {};
  DType dtype = DType::kFloat32;  ///< Of the inputs.
};

template <class T>
Tensor values_of(const Shape& shape, int seed) {
  Tensor out = Tensor::empty(tensor::kDTypeOf<T>, shape);
  uint32_t state = 12345U + static_cast<uint32_t>(seed);
  for (T& x : out.data<T>()) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<T>(static_cast<float>(state >> 8) / static_cast<float>(1U << 24) - 0.5F);
  }
  return out;
}

Tensor values(DType dtype, const Shape& shape, int seed) {
  return dtype == DType::kFloat32 ? values_of<float>(shape, seed)
                                  : values_of<tensor::BFloat16>(shape, seed);
}

Tensor run(const Case& one, Workers* workers) {
  program::Program program;
  program::Instruction instruction;
  instruction.op = instruction.name = one.op;
  instruction.attrs = one.attrs;
  for (size_t i = 0; i < one.shapes.size(); ++i) {
    program.slots.push_back({one.dtype, one.shapes[i], -1});
    program.feeds.push_back(static_cast<int32_t>(i));
    program.feed_names.push_back(fmt::format("x{}", i));
    instruction.inputs.push_back(static_cast<int32_t>(i));
  }
  program.slots.push_back({DType::kFloat32, Shape::unknown_rank(), 0});
  program.num_buffers = 1;
  instruction.outputs = {static_cast<int32_t>(one.shapes.size())};
  program.fetches = instruction.outputs;
  program.fetch_names = {"y"};
  program.instructions = {instruction};
  auto bound = BoundProgram::bind(program, all_kernels(), {});
  EXPECT_TRUE(bound.ok()) << bound.status();
  BufferPool pool(size_t{1} << 30);
  Step step(bound->get(), &pool, nullptr);
  step.set_workers(workers);
  step.begin(1);
  for (size_t i = 0; i < one.shapes.size(); ++i) {
    const Tensor value = values(one.dtype, one.shapes[i], static_cast<int>(i));
    EXPECT_TRUE(step.feed(static_cast<int>(i), value).ok());
  }
  const auto progress = step.advance();
  EXPECT_TRUE(progress.ok()) << progress.status();
  return step.fetch(0).clone();
}

TEST(Workers, change_no_bit_of_a_result) {
  const AttrMap plain = {{"transpose_a", false}, {"transpose_b", false}};
  const AttrMap left = {{"transpose_a", true}, {"transpose_b", false}};
  const AttrMap right = {{"transpose_a", false}, {"transpose_b", true}};
  const std::vector<std::string> code = {"Mul %0 %1", "Sigmoid %2", "Sub %3 %0"};
  const std::vector<Case> cases = {
      {"MatMul", {{2048, 200}, {200, 96}}, plain},
      {"MatMul", {{1500, 200}, {200, 130}}, plain},
      {"MatMul", {{4096, 96}, {4096, 80}}, left},
      {"MatMul", {{1100, 300}, {120, 300}}, right},
      {"MatMul", {{300, 27, 40}, {300, 27, 40}}, right},
      {"MatMul", {{2048, 200}, {200, 96}}, plain, DType::kBFloat16},
      {"MatMul", {{4096, 96}, {4096, 80}}, left, DType::kBFloat16},
      {"MatMul", {{2048, 90}, {2048, 300}}, left, DType::kBFloat16},
      {"MatMul", {{8, 9000}, {700, 9000}}, right, DType::kBFloat16},
      {"MatMul", {{300, 27, 40}, {300, 27, 40}}, right, DType::kBFloat16},
      {"FusedMatMul", {{1300, 250}, {250, 100}, {100}}, {{"relu", true}}},
      {"FusedMatMul", {{96, 4100}, {4100, 100}, {100}}, {}},
      {"ConcatMatMul",
       {{30, 50, 64}, {30, 1, 40}, {30, 50, 33}, {137, 80}, {80}},
       {{"bias", true}, {"activation", std::string("Sigmoid")}}},
      {"TransposedConcatMatMul", {{70, 50, 64}, {70, 1, 40}, {70, 50, 33}, {3500, 80}}},
      {"MatMulSplit",
       {{3500, 80}, {120, 80}},
       {{"begins", std::vector<int64_t>{40}}, {"sizes", std::vector<int64_t>{64}}}},
      {"MatMulSplit",
       {{3500, 200}, {120, 200}},
       {{"begins", std::vector<int64_t>{40}}, {"sizes", std::vector<int64_t>{70}}}},
      {"Tanh", {{333, 1001}}},
      {"Add", {{333, 1001}, {333, 1001}}},
      {"AddN", {{333, 1001}, {333, 1001}, {333, 1001}}},
      {"ReluGrad", {{333, 1001}, {333, 1001}}},
      {"Concat", {{3000, 64}, {3000, 31}, {3000, 200}}, {{"axis", int64_t{1}}}},
      {"SliceAxis",
       {{9000, 100}},
       {{"axis", int64_t{1}}, {"begin", int64_t{7}}, {"size", int64_t{64}}}},
      {"FusedElementwise", {{333, 1001}, {333, 1001}}, {{"code", code}}},
  };
  Workers two(2);
  Workers five(5);
  for (const Case& one : cases) {
    SCOPED_TRACE(fmt::format("{} {}", one.op, one.shapes[0].to_string()));
    const Tensor alone = run(one, nullptr);
    for (Workers* workers : {&two, &five}) {
      const Tensor helped = run(one, workers);
      ASSERT_EQ(helped.nbytes(), alone.nbytes());
      EXPECT_EQ(std::memcmp(helped.raw(), alone.raw(), alone.nbytes()), 0);
    }
  }
}

TEST(Workers, multiply_bfloat16_as_float32_would_its_values) {
  struct Product {
    std::vector<Shape> shapes;
    bool left = false;
    bool right = false;
  };
  const std::vector<Product> products = {{{{2048, 200}, {200, 96}}},
                                         {{{1100, 300}, {120, 300}}, false, true},
                                         {{{4096, 96}, {4096, 80}}, true, false},
                                         {{{4099, 90}, {120, 4099}}, true, true},
                                         {{{12, 6000}, {6000, 500}}}};
  Workers workers(3);
  for (const Product& one : products) {
    SCOPED_TRACE(fmt::format("{} {}", one.shapes[0].to_string(), one.shapes[1].to_string()));
    const AttrMap attrs = {{"transpose_a", one.left}, {"transpose_b", one.right}};
    const Tensor got = run({"MatMul", one.shapes, attrs, DType::kBFloat16}, &workers);
    const Tensor a = values_of<tensor::BFloat16>(one.shapes[0], 0);
    const Tensor b = values_of<tensor::BFloat16>(one.shapes[1], 1);
    const auto x = a.data<const tensor::BFloat16>();
    const auto y = b.data<const tensor::BFloat16>();
    const auto z = got.data<const float>();
    const int64_t m = one.shapes[0].dim(one.left ? 1 : 0);
    const int64_t k = one.shapes[0].dim(one.left ? 0 : 1);
    const int64_t n = one.shapes[1].dim(one.right ? 0 : 1);
    ASSERT_EQ(z.size(), static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; i += 7) {
      for (int64_t j = 0; j < n; j += 5) {
        double want = 0;
        for (int64_t l = 0; l < k; ++l) {
          want += static_cast<double>(x[one.left ? l * m + i : i * k + l]) *
                  static_cast<double>(y[one.right ? j * k + l : l * n + j]);
        }
        ASSERT_NEAR(z[i * n + j], want, 1e-3) << "at " << i << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace sidereal::exec
