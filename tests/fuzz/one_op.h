#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/exec/kernel.h"
#include "sidereal/ir/schema.h"
#include "sidereal/program/program.h"
#include "sidereal/tensor/tensor.h"

/// Programs of one instruction, as a hostile peer would send them, made from bytes.
namespace sidereal::fuzz {

/// Decisions, read from bytes; the first of each kind once there are no more.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}

  /// A number in [low, high].
  int64_t number(int64_t low, int64_t high);
  bool one_in(int64_t n) { return number(0, n - 1) == 1; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(number(0, static_cast<int64_t>(from.size()) - 1))];
  }

 private:
  std::string_view bytes_;
};

struct OneOp {
  program::Program program;
  std::vector<tensor::Tensor> feeds;
};

/// An instruction that runs.
struct Example {
  std::string op;
  ir::AttrMap attrs;
  std::vector<tensor::Tensor> inputs;
  std::vector<tensor::DType> outputs;
};

/// At least one of each op that random inputs and attributes hardly ever fit.
const std::vector<Example>& examples();

/// It as a program.
OneOp to_program(const Example& example);

/// An instruction of the op of `schema` with inputs, outputs and attributes that fit now and then:
/// an example with a few changes, or anything.
OneOp make_one_op(const ir::OpSchema& schema, Choices& choices);

/// Every op with a kernel, its schema, and variables, queues, accumulators and tables for them.
/// Thread: one at a time.
class OpRunner {
 public:
  OpRunner();

  [[nodiscard]] const exec::KernelTable& kernels() const { return kernels_; }
  [[nodiscard]] const ir::OpRegistry& ops() const { return ops_; }

  /// Binds and runs it among new resources, and reads all that comes out. A value of another dtype
  /// than was declared is a bug.
  Status run(OneOp op);

 private:
  ir::OpRegistry ops_;
  exec::KernelTable kernels_;
};

}  // namespace sidereal::fuzz
