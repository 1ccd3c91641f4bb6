#include "tests/fuzz/one_op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

namespace sidereal::fuzz {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

OpRunner& runner() {
  static auto* const made = new OpRunner;
  return *made;
}

/// Ops that random inputs and attributes do not make run: what they need is not in one instruction,
/// and tests of their own give it to them.
const std::set<std::string>& ops_of_other_tests() {
  static const std::set<std::string> kOps = {
      "HostFunction",  // Functions of the process.
      "Recv",          // A peer.
      "AccumulatorTake",
      "QueueDequeue",  // They wait.
      "DatasetIterator",
      "IteratorNext",  // Threads and files.
      "IteratorNextOrEnd",
      "IteratorRestore",
      "IteratorSave",
      "SaveVariables",
      "SaveTensors",  // They wait for files.
      "CommitCheckpoint",
      "RestoreVariables",
      "RestoreTensors",
  };
  return kOps;
}

// A program of a peer may fail. It may not read or write outside of its tensors or end the process.
// Whoever adds a kernel finds it here.
TEST(Kernels, run_or_refuse_whatever_they_are_given) {
  constexpr int kTries = 30000;
  std::mt19937 random(5);
  std::set<std::string> never;
  for (const std::string& op : runner().kernels().names()) {
    const ir::OpSchema* schema = runner().ops().find(op);
    ASSERT_NE(schema, nullptr) << op << " has a kernel and no schema";
    // Print writes what it is given to the log.
    if (op == "Print") continue;
    int ran = 0;
    for (int i = 0; i < kTries && (i < 300 || ran == 0); ++i) {
      std::string bytes(120, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      SCOPED_TRACE(fmt::format("{} try {}", op, i));
      Choices choices(bytes);
      const Status status = runner().run(make_one_op(*schema, choices));
      if (status.ok()) ++ran;
    }
    if (ran == 0) never.insert(op);
  }
  EXPECT_EQ(fmt::format("{}", fmt::join(never, " ")),
            fmt::format("{}", fmt::join(ops_of_other_tests(), " ")));
}

/// What `op` says to `inputs` and `attrs`, with outputs of `outputs`.
Status run(const std::string& op, std::vector<Tensor> inputs, ir::AttrMap attrs,
           const std::vector<DType>& outputs) {
  return runner().run(to_program({op, std::move(attrs), std::move(inputs), outputs}));
}

TEST(Kernels, run_the_examples) {
  for (const Example& example : examples()) {
    const Status status = runner().run(to_program(example));
    // Of what waits, somebody else would do the other part.
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable)
        << example.op << ": " << status;
  }
}

constexpr int64_t kShard = int64_t{1} << 40;  // See kernels::kPositionShift.

TEST(Kernels, take_no_positions_that_no_route_gives) {
  const Tensor grads = Tensor::zeros(DType::kFloat32, {3, 4});
  const Tensor rows = Tensor::of<int64_t>({2}, {5, 7});
  const Tensor ids = Tensor::of<int64_t>({3}, {5, 7, 5});
  const Tensor part = Tensor::zeros(DType::kFloat32, {2, 4});
  const ir::AttrMap dim = {{"dim", int64_t{4}}};
  const ir::AttrMap joined = {{"shards", int64_t{1}},
                              {"counts", std::vector<int64_t>{3}},
                              {"axis", int64_t{0}},
                              {"shape", std::vector<int64_t>{12}}};
  const auto codes = [&](const Tensor& position, const Tensor& inverse) {
    return std::vector<StatusCode>{
        run("SumParts", {grads, position, inverse, rows}, dim, {DType::kFloat32}).code(),
        run("GatherParts", {ids, position, inverse, part}, dim, {DType::kFloat32}).code(),
        run("GatherPartsConcat", {ids, position, inverse, part}, joined, {DType::kFloat32}).code()};
  };
  const auto places = [](std::vector<int32_t> at) { return Tensor::of<int32_t>({3}, at); };
  const Tensor good = Tensor::of<int64_t>({2}, {0, 1});
  const std::vector<StatusCode> fine(3, StatusCode::kOk);
  const std::vector<StatusCode> refused(3, StatusCode::kInvalidArgument);
  EXPECT_EQ(codes(good, places({0, 1, 0})), fine);
  for (const std::vector<int64_t>& bad : std::vector<std::vector<int64_t>>{
           {kShard, 2 * kShard}, {0, kShard}, {0, 2}, {1, 0}, {0, 0}, {-1, 0}, {0, -kShard}}) {
    EXPECT_EQ(codes(Tensor::of<int64_t>({2}, bad), places({0, 1, 0})), refused)
        << bad[0] << ' ' << bad[1];
  }
  // A row that no position names would be left as the memory was.
  EXPECT_EQ(codes(Tensor::of<int64_t>({1}, {0}), places({0, 0, 0})), refused);
  EXPECT_EQ(codes(good, places({0, 1, 2})), refused);
  EXPECT_EQ(codes(good, places({0, 1, std::numeric_limits<int32_t>::max()})), refused);
  // Sums need each id to begin in order.
  EXPECT_EQ(codes(good, places({1, 0, 0}))[0], StatusCode::kInvalidArgument);
  EXPECT_EQ(codes(good, places({0, 0, 0}))[0], StatusCode::kInvalidArgument);
  // Other types.
  EXPECT_EQ(codes(Tensor::of<int32_t>({2}, {0, 1}), places({0, 1, 0})), refused);
  EXPECT_EQ(codes(good, Tensor::of<int64_t>({3}, {0, 1, 0})), refused);
  EXPECT_EQ(run("SumParts", {Tensor::zeros(DType::kFloat64, {3, 4}), good, places({0, 1, 0}), rows},
                dim, {DType::kFloat32})
                .code(),
            StatusCode::kInvalidArgument);
}

TEST(Kernels, take_no_more_memory_than_there_is) {
  const Tensor x = Tensor::zeros(DType::kFloat32, {2});
  for (const int64_t many : {int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 40}) {
    const ir::AttrMap pad = {{"axis", int64_t{0}}, {"before", many}, {"after", int64_t{0}}};
    EXPECT_NE(run("PadAxis", {x}, pad, {DType::kFloat32}).code(), StatusCode::kOk) << many;
    const ir::AttrMap raw = {{"out_type", DType::kUInt8}, {"fixed_length", many}};
    EXPECT_NE(run("DecodeRaw", {Tensor::strings(Shape(), std::vector<std::string>{"a"})}, raw,
                  {DType::kUInt8})
                  .code(),
              StatusCode::kOk)
        << many;
  }
}

TEST(Kernels, compute_extents_at_the_ends_of_int64) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Tensor numbers = Tensor::of<int64_t>({2}, {1, kMost});
  EXPECT_NE(run("Bincount", {numbers}, {{"dtype", DType::kInt64}}, {DType::kInt64}).code(),
            StatusCode::kOk);
  const ir::AttrMap cut = {{"maxlength", int64_t{4}}, {"dtype", DType::kInt64}};
  EXPECT_EQ(run("Bincount", {numbers}, cut, {DType::kInt64}).code(), StatusCode::kOk);
  const Tensor x = Tensor::zeros(DType::kFloat32, {2});
  for (const int64_t begin : {kLeast, kMost, int64_t{-1}, int64_t{3}}) {
    const ir::AttrMap part = {{"begin", std::vector<int64_t>{begin}},
                              {"size", std::vector<int64_t>{-1}}};
    EXPECT_EQ(run("Slice", {x}, part, {DType::kFloat32}).code(), StatusCode::kInvalidArgument)
        << begin;
  }
}

}  // namespace
}  // namespace sidereal::fuzz
