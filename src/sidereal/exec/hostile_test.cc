#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "sidereal/exec/executor.h"
#include "sidereal/exec/kernel.h"
#include "sidereal/ops/ops.h"
#include "sidereal/program/validate.h"
#include "sidereal/tensor/dispatch.h"
#include "sidereal/tensor/strings.h"

// Programs come from peers: whatever inputs, outputs and attributes an instruction names, its
// kernel refuses them or runs; it never reads or writes outside of its tensors, and never aborts.
namespace sidereal::exec {
namespace {

using ir::DType;
using ir::Shape;
using ir::Tensor;

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[number(0, static_cast<int64_t>(from.size()) - 1)];
  }

 private:
  std::mt19937 engine_;
};

const std::vector<DType>& dtypes() {
  static const std::vector<DType> kDTypes = {DType::kFloat32, DType::kFloat32,  DType::kFloat64,
                                             DType::kInt32,   DType::kInt64,    DType::kBool,
                                             DType::kInt8,    DType::kBFloat16, DType::kString};
  return kDTypes;
}

/// Words, numbers, records, and a tf.train.Example whose feature "v" is the int64 list [1, 2].
const std::vector<std::string>& texts() {
  static const std::vector<std::string> kTexts = {"",
                                                  "a b",
                                                  "3",
                                                  "-1.5",
                                                  "1,2",
                                                  "\"q\"\"\",x",
                                                  "\xff\xc3",
                                                  std::string("\0\1\2\3", 4),
                                                  "\n\x0f\n\r\n\1v\x12\x08\x1a\x06\n\4\1\2\3\4"};
  return kTexts;
}

Tensor random_strings(Dice& dice, const Shape& shape) {
  tensor::StringsBuilder strings;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    std::string text = dice.pick(texts());
    if (!text.empty() && dice.number(0, 4) == 0) {
      text[dice.number(0, static_cast<int64_t>(text.size()) - 1)] ^= 5;
    }
    strings.add(text);
  }
  return std::move(strings).finish(shape);
}

/// Mostly small values that could be indices; some that could not.
Tensor random_tensor(Dice& dice, DType dtype, const Shape& shape) {
  if (dtype == DType::kString) return random_strings(dice, shape);
  Tensor out = Tensor::zeros(dtype, shape);
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    const int64_t value = dice.number(0, 9) == 0
                              ? dice.number(-(int64_t{1} << 40), int64_t{1} << 40)
                              : dice.number(-1, 3);
    tensor::visit_dtype<tensor::PlainTypes>(
        dtype, [&]<class T>() { out.data<T>()[i] = static_cast<T>(value); });
  }
  return out;
}

Shape random_shape(Dice& dice) {
  static const std::vector<Shape> kShapes = {{},     {0},       {1},          {2},    {3},
                                             {4},    {2, 3},    {3, 2},       {0, 3}, {3, 0},
                                             {2, 2}, {2, 1, 3}, {1, 3, 3, 2}, {4, 1}, {2, 2, 2, 2}};
  return dice.pick(kShapes);
}

int64_t random_int(Dice& dice) {
  static const std::vector<int64_t> kNumbers = {
      -(int64_t{1} << 62), -3, -1, 0, 0, 1, 1, 2, 3, 7, int64_t{1} << 41, int64_t{1} << 62};
  return dice.pick(kNumbers);
}

ir::AttrMap random_attrs(Dice& dice, const ir::OpSchema& schema) {
  static const std::vector<std::string> kTexts = {
      "sum", "mean",     "sqrt_n", "same", "valid",      "reflect", "symmetric", "left",
      "v",   "explicit", ",",      "",     "(a)|[0-9]+", "\\1",     "{}",        "UTF8_CHAR"};
  static const std::vector<std::string> kWords = {"v", "w", "int64", "string", "float32"};
  ir::AttrMap out;
  for (const ir::AttrSpec& attr : schema.attrs) {
    if (dice.number(0, 9) < (attr.required ? 1 : 5)) continue;
    std::vector<int64_t> ints(dice.number(0, 4));
    for (int64_t& value : ints)
      value = dice.number(0, 4) == 0 ? random_int(dice) : dice.number(0, 2);
    if (attr.type == "int")
      out[attr.name] = dice.number(0, 2) == 0 ? random_int(dice) : dice.number(-2, 3);
    if (attr.type == "ints") out[attr.name] = ints;
    if (attr.type == "float") out[attr.name] = static_cast<double>(dice.number(-2, 2));
    if (attr.type == "bool") out[attr.name] = dice.number(0, 1) == 1;
    if (attr.type == "string") out[attr.name] = dice.pick(kTexts);
    if (attr.type == "strings") {
      std::vector<std::string> words(dice.number(0, 2));
      for (std::string& word : words) word = dice.pick(kWords);
      out[attr.name] = words;
    }
    if (attr.type == "dtype") out[attr.name] = dice.pick(dtypes());
    if (attr.type == "shape") out[attr.name] = random_shape(dice);
  }
  return out;
}

/// One instruction of `op` on random inputs, as a program from a peer would have it.
bool run_one(Dice& dice, const ir::OpSchema& schema, const KernelTable& kernels) {
  program::Program program;
  program::Instruction instruction;
  instruction.op = schema.name;
  instruction.name = "x";
  instruction.attrs = random_attrs(dice, schema);
  const int64_t most = schema.max_inputs < 0 ? schema.min_inputs + 2 : schema.max_inputs;
  const int64_t inputs = dice.number(schema.min_inputs, most);
  const DType usual = dice.pick(dtypes());
  const Shape usual_shape = random_shape(dice);
  std::vector<Tensor> feeds;
  for (int64_t i = 0; i < inputs; ++i) {
    const DType dtype = dice.number(0, 2) != 0   ? usual
                        : dice.number(0, 1) == 0 ? DType::kInt64
                                                 : dice.pick(dtypes());
    feeds.push_back(
        random_tensor(dice, dtype, dice.number(0, 1) == 0 ? usual_shape : random_shape(dice)));
    instruction.inputs.push_back(static_cast<int32_t>(program.slots.size()));
    program.feeds.push_back(instruction.inputs.back());
    program.feed_names.emplace_back();
    program.slots.push_back({dtype, feeds.back().shape(), -1});
  }
  const int64_t outputs = dice.number(0, 4) == 0 ? dice.number(0, 3) : 1 + dice.number(0, 1) * 2;
  for (int64_t o = 0; o < outputs; ++o) {
    instruction.outputs.push_back(static_cast<int32_t>(program.slots.size()));
    program.slots.push_back({o > 0 ? dice.pick(dtypes()) : usual, Shape::unknown_rank(), -1});
  }
  program.instructions.push_back(std::move(instruction));
  if (!program::validate(program).ok()) return false;
  auto bound = BoundProgram::bind(std::move(program), kernels, {});
  if (!bound.ok()) return false;
  BufferPool pool(1 << 20);
  Step step(bound->get(), &pool, nullptr);
  step.begin(1);
  for (size_t i = 0; i < feeds.size(); ++i) {
    EXPECT_TRUE(step.feed(static_cast<int>(i), feeds[i]).ok());
  }
  return step.advance().ok();
}

TEST(Hostile, instructions_run_or_are_refused_whatever_they_say) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  KernelTable kernels;
  register_ps_kernels(&kernels);
  int ran = 0;
  int refused = 0;
  for (const std::string& op : registry.names()) {
    // Print writes what it is given to the log, and is all checks besides.
    if (kernels.find(op) == nullptr || op == "Print") continue;
    for (uint32_t seed = 0; seed < 400; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", op, seed));
      Dice dice(seed * 977 + static_cast<uint32_t>(op.size()));
      ++(run_one(dice, *registry.find(op), kernels) ? ran : refused);
    }
  }
  fmt::print("{} instructions ran, {} were refused\n", ran, refused);
  EXPECT_GT(ran, 1000);
}

}  // namespace
}  // namespace sidereal::exec
