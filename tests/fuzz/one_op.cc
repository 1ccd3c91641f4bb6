#include "tests/fuzz/one_op.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/local_rendezvous.h"
#include "sidereal/ops/ops.h"
#include "sidereal/program/validate.h"
#include "sidereal/resources/accumulator.h"
#include "sidereal/resources/manager.h"
#include "sidereal/resources/queue.h"
#include "sidereal/resources/step_barrier.h"
#include "sidereal/resources/table.h"
#include "sidereal/resources/variable.h"
#include "sidereal/tensor/dispatch.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::fuzz {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// What all tensors of a run may have together: a program that asks for more is refused, and one
/// that does not cannot run for long.
constexpr size_t kMemory = size_t{64} << 20;

const std::vector<DType>& dtypes() {
  using enum DType;
  static const std::vector<DType> kAll = {
      kFloat32, kFloat32,  kFloat32, kInt64, kInt64, kInt32, kInt32,  kString, kFloat64,
      kBool,    kBFloat16, kFloat16, kUInt8, kInt8,  kInt16, kUInt16, kUInt32, kUInt64};
  return kAll;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kAll = {
      {},   {2},     {2, 3},          {3},      {1},    {4},          {3, 2},    {2, 2},
      {0},  {0, 3},  {3, 0},          {4, 1},   {1, 3}, {1, 3, 3, 2}, {2, 1, 3}, {2, 2, 2, 2},
      {64}, {16, 8}, {1, 1, 1, 1, 1}, {2, 0, 2}};
  return kAll;
}

/// Names of the resources of a run, words and numbers, and what parses as something.
const std::vector<std::string>& texts() {
  static const std::vector<std::string> kAll = {
      "v", "d", "i", "b", "q", "a", "s", "t", "u", "", "a b", "3", "-1.5", "1,2", "\"q\"\"\",x",
      "\xff\xc3", std::string("\0\1\2\3", 4),
      // A tf.train.Example whose feature "v" is the int64 list [1, 2].
      "\n\x0f\n\r\n\1v\x12\x08\x1a\x06\n\4\1\2\3\4"};
  return kAll;
}

/// What attributes of text may say.
const std::vector<std::string>& words() {
  static const std::vector<std::string> kAll = {
      "v",          "q",        "a",         "t",         "sum",   "mean",     "sqrt_n",  "same",
      "valid",      "reflect",  "symmetric", "left",      "right", "explicit", ",",       "",
      "(a)|[0-9]+", "\\1",      "{}",        "UTF8_CHAR", "BYTE",  "sgd",      "adagrad", "adam",
      "momentum",   "lamb",     "rmsprop",   "Relu",      "Add",   "Mul",      "Neg",     "fifo",
      "shuffled",   "priority", "max",       "min",       "prod",  "e",        "%"};
  return kAll;
}

const std::vector<int64_t>& hostile_numbers() {
  static const std::vector<int64_t> kAll = {-1,
                                            int64_t{1} << 31,
                                            (int64_t{1} << 31) - 1,
                                            -(int64_t{1} << 31),
                                            int64_t{1} << 32,
                                            int64_t{1} << 40,
                                            (int64_t{1} << 40) + 1,
                                            int64_t{1} << 41,
                                            int64_t{1} << 48,
                                            int64_t{1} << 62,
                                            -(int64_t{1} << 62),
                                            std::numeric_limits<int64_t>::max(),
                                            std::numeric_limits<int64_t>::min(),
                                            1000,
                                            65,
                                            1 << 20};
  return kAll;
}

int64_t any_number(Choices& choices) {
  return choices.one_in(4) ? choices.pick(hostile_numbers()) : choices.number(-2, 7);
}

Tensor any_strings(Choices& choices, const Shape& shape) {
  tensor::StringsBuilder strings;
  for (int64_t i = 0; i < shape.num_elements(); ++i) strings.add(choices.pick(texts()));
  return std::move(strings).finish(shape);
}

/// Numbers that could be indices, mostly; some could not.
Tensor any_tensor(Choices& choices, DType dtype, const Shape& shape) {
  if (dtype == DType::kString) return any_strings(choices, shape);
  Tensor out = Tensor::zeros(dtype, shape);
  const int64_t kind = choices.number(0, 3);
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    int64_t value = i;
    if (kind == 1) value = choices.number(-1, 3);
    if (kind == 2) value = choices.one_in(5) ? choices.pick(hostile_numbers()) : i;
    if (kind == 3) value = out.num_elements() - i;
    tensor::visit_dtype<tensor::PlainTypes>(dtype, [&]<class T>() {
      if constexpr (std::is_same_v<T, bool>) {
        out.data<T>()[i] = (value & 1) != 0;
      } else if constexpr (std::is_integral_v<T>) {
        out.data<T>()[i] = static_cast<T>(value);
      } else {
        out.data<T>()[i] = static_cast<T>(static_cast<float>(value));
      }
    });
  }
  return out;
}

ir::AttrValue any_attr(Choices& choices, const std::string& type, DType usual) {
  if (type == "bool") return choices.number(0, 1) == 1;
  if (type == "int") return any_number(choices);
  if (type == "float") return static_cast<double>(any_number(choices));
  if (type == "dtype") return choices.one_in(3) ? choices.pick(dtypes()) : usual;
  if (type == "shape") {
    if (!choices.one_in(8)) return choices.pick(shapes());
    return Shape{choices.pick(hostile_numbers()), choices.pick(hostile_numbers())};
  }
  const auto count = static_cast<size_t>(choices.number(0, 4));
  if (type == "ints") {
    std::vector<int64_t> out(count);
    for (int64_t& value : out) value = any_number(choices);
    return out;
  }
  if (type == "floats") {
    std::vector<double> out(count);
    for (double& value : out) value = static_cast<double>(any_number(choices));
    return out;
  }
  if (type == "strings") {
    static const std::vector<std::string> kNames = {"float32", "int64", "string", "bool", "v"};
    std::vector<std::string> out(count);
    for (std::string& value : out) {
      value = choices.one_in(4) ? choices.pick(words()) : choices.pick(kNames);
    }
    return out;
  }
  if (type == "tensor") return any_tensor(choices, usual, choices.pick(shapes()));
  return choices.pick(words());
}

ir::AttrMap any_attrs(Choices& choices, const ir::OpSchema& schema, DType usual) {
  static const std::vector<std::string> kTypes = {"bool", "int", "ints", "string", "tensor"};
  ir::AttrMap out;
  for (const ir::AttrSpec& attr : schema.attrs) {
    if (attr.required ? choices.one_in(30) : choices.number(0, 1) == 0) continue;
    const std::string& type = choices.one_in(40) ? choices.pick(kTypes) : attr.type;
    out[attr.name] = any_attr(choices, type, usual);
  }
  return out;
}

/// The resources of a run.
void make_resources(resources::Manager* manager) {
  using resources::Variable;
  const auto variable = [manager](const char* name, DType dtype, const Shape& shape) {
    auto made = Variable::make({.name = name, .dtype = dtype, .shape = shape});
    SR_CHECK(made.ok(), "{}", base::message_of(made.status()));
    if (shape.is_fully_defined()) {
      const Status set = (*made)->assign(Tensor::zeros(dtype, shape), true);
      SR_CHECK(set.ok(), "{}", base::message_of(set));
    }
    static_cast<void>(manager->find_or_create<Variable>(name, [&] { return *made; }));
  };
  variable("v", DType::kFloat32, {3, 2});
  variable("d", DType::kFloat32, {2, 3});
  variable("i", DType::kInt64, {4});
  variable("b", DType::kBFloat16, Shape::unknown_rank());
  static_cast<void>(manager->find_or_create<resources::Queue>("q", [] {
    return *resources::Queue::make({.name = "q", .dtypes = {DType::kFloat32}, .capacity = 4});
  }));
  static_cast<void>(manager->find_or_create<resources::Accumulator>("a", [] {
    return *resources::Accumulator::make({.name = "a", .shape = Shape::unknown_rank()});
  }));
  static_cast<void>(manager->find_or_create<resources::Accumulator>("s", [] {
    return *resources::Accumulator::make(
        {.name = "s", .shape = Shape::unknown_rank(), .sparse = true});
  }));
  static_cast<void>(manager->find_or_create<resources::StepBarrier>("w", [] {
    auto made = resources::StepBarrier::make("w");
    SR_CHECK(made->restart(0, 0, {"one", "other"}).ok(), "a barrier of two");
    return made;
  }));
  static_cast<void>(manager->find_or_create<resources::Table>(
      "t", [] { return *resources::Table::make({.name = "t", .value = DType::kFloat32}); }));
  static_cast<void>(manager->find_or_create<resources::Table>(
      "u", [] { return *resources::Table::make({.name = "u", .key = DType::kString}); }));
}

/// Reads every byte, so that a sanitizer sees what is not there.
uint64_t sum_of(const Tensor& value) {
  uint64_t sum = 0;
  const auto add = [&sum](const void* data, size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) sum += at[i];
  };
  if (value.dtype() == DType::kString) {
    for (const std::string_view text : value.data<const std::string_view>()) {
      add(text.data(), text.size());
    }
  } else {
    add(value.raw(), value.nbytes());
  }
  return sum;
}

}  // namespace

int64_t Choices::number(int64_t low, int64_t high) {
  const auto span = static_cast<uint64_t>(high - low) + 1;
  if (bytes_.empty()) return low;
  const auto byte = static_cast<unsigned char>(bytes_.front());
  bytes_.remove_prefix(1);
  return low + static_cast<int64_t>(byte % span);
}

OneOp to_program(const Example& example) {
  OneOp out;
  program::Instruction instruction;
  instruction.op = example.op;
  instruction.name = "x";
  instruction.attrs = example.attrs;
  const auto slot = [&out](DType dtype) {
    out.program.slots.push_back({dtype, Shape::unknown_rank(), -1});
    return static_cast<int32_t>(out.program.slots.size() - 1);
  };
  for (const Tensor& input : example.inputs) {
    out.feeds.push_back(input);
    instruction.inputs.push_back(slot(input.dtype()));
    out.program.feeds.push_back(instruction.inputs.back());
    out.program.feed_names.emplace_back();
  }
  for (const DType dtype : example.outputs) instruction.outputs.push_back(slot(dtype));
  out.program.instructions.push_back(std::move(instruction));
  return out;
}

namespace {

/// `example` with a change here and there.
Example changed(Example example, const ir::OpSchema& schema, Choices& choices) {
  const int64_t rarity = choices.number(3, 12);
  for (Tensor& input : example.inputs) {
    if (!choices.one_in(rarity)) continue;
    const DType dtype = choices.one_in(4) ? choices.pick(dtypes()) : input.dtype();
    const Shape shape = choices.one_in(3) ? choices.pick(shapes()) : input.shape();
    input = any_tensor(choices, dtype, shape);
  }
  for (const ir::AttrSpec& attr : schema.attrs) {
    if (!choices.one_in(rarity)) continue;
    if (choices.one_in(6)) {
      example.attrs.erase(attr.name);
    } else {
      example.attrs[attr.name] = any_attr(choices, attr.type, DType::kFloat32);
    }
  }
  for (DType& dtype : example.outputs) {
    if (choices.one_in(30)) dtype = choices.pick(dtypes());
  }
  if (choices.one_in(40) && !example.inputs.empty()) example.inputs.pop_back();
  if (choices.one_in(40)) example.outputs.push_back(choices.pick(dtypes()));
  return example;
}

}  // namespace

OneOp make_one_op(const ir::OpSchema& schema, Choices& choices) {
  std::vector<const Example*> known;
  for (const Example& example : examples()) {
    if (example.op == schema.name) known.push_back(&example);
  }
  if (!known.empty() && !choices.one_in(4)) {
    return to_program(changed(*choices.pick(known), schema, choices));
  }
  Example out = {.op = schema.name, .attrs = {}, .inputs = {}, .outputs = {}};
  const DType usual = choices.pick(dtypes());
  const Shape usual_shape = choices.pick(shapes());
  out.attrs = any_attrs(choices, schema, usual);
  const int64_t most = schema.max_inputs < 0 ? schema.min_inputs + 3 : schema.max_inputs;
  int64_t inputs = choices.number(schema.min_inputs, most);
  if (choices.one_in(30)) inputs = choices.number(0, 5);
  for (int64_t i = 0; i < inputs; ++i) {
    const bool handle = i < schema.handle_inputs && !choices.one_in(20);
    DType dtype = choices.one_in(3) ? choices.pick(dtypes()) : usual;
    Shape shape = choices.one_in(3) ? choices.pick(shapes()) : usual_shape;
    if (handle) {
      dtype = DType::kString;
      shape = {};
    }
    out.inputs.push_back(any_tensor(choices, dtype, shape));
  }
  static const std::vector<int64_t> kOutputs = {1, 1, 1, 2, 0, 3, 4};
  const int64_t outputs = choices.pick(kOutputs);
  for (int64_t o = 0; o < outputs; ++o) {
    out.outputs.push_back(choices.one_in(2) ? choices.pick(dtypes()) : usual);
  }
  return to_program(out);
}

OpRunner::OpRunner() {
  ops::register_all(&ops_);
  exec::register_kernels(&kernels_);
  tensor::Buffer::limit_memory(kMemory);
}

Status OpRunner::run(OneOp op) {
  SR_RETURN_IF_ERROR(program::validate(op.program));
  resources::Manager manager;
  make_resources(&manager);
  const std::vector<int32_t> outputs = op.program.instructions[0].outputs;
  op.program.fetches = outputs;
  op.program.fetch_names.resize(outputs.size());
  SR_ASSIGN_OR_RETURN(const auto bound, exec::BoundProgram::bind(std::move(op.program), kernels_,
                                                                 {.resources = &manager}));
  exec::BufferPool pool(1 << 20);
  exec::LocalRendezvous rendezvous;
  exec::Step step(bound.get(), &pool, nullptr);
  step.set_rendezvous(&rendezvous);
  // Again with the memory of the first time.
  for (uint64_t id = 1; id <= 2; ++id) {
    step.begin(id);
    for (size_t i = 0; i < op.feeds.size(); ++i) {
      SR_RETURN_IF_ERROR(step.feed(static_cast<int>(i), op.feeds[i]));
    }
    SR_ASSIGN_OR_RETURN(const exec::Step::Progress progress, step.advance());
    if (progress == exec::Step::Progress::kBlocked) {
      return base::unavailable("it waits for {}", step.waits_for());
    }
    uint64_t sum = 0;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const Tensor& value = step.fetch(static_cast<int>(o));
      const DType declared = bound->program().slots[outputs[o]].dtype;
      SR_CHECK(value.defined(), "output {} was not made", o);
      SR_CHECK(value.dtype() == declared, "output {} is {}", o, value.to_string());
      sum += sum_of(value);
    }
    asm volatile("" : : "r"(sum));
  }
  return {};
}

}  // namespace sidereal::fuzz
