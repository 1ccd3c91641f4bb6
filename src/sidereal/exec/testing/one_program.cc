#include "sidereal/exec/testing/one_program.h"

#include <gtest/gtest.h>
#include <cstring>

#include <cmath>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/resources/variable.h"

namespace sidereal::exec {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

template <class T>
void fill(Tensor* out, const std::function<double()>& next) {
  for (T& x : out->data<T>()) x = static_cast<T>(next());
}

double element(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kFloat32:
      return t.data<const float>()[i];
    case DType::kFloat64:
      return t.data<const double>()[i];
    case DType::kInt32:
      return t.data<const int32_t>()[i];
    case DType::kInt64:
      return static_cast<double>(t.data<const int64_t>()[i]);
    case DType::kUInt8:
      return t.data<const uint8_t>()[i];
    case DType::kBool:
      return t.data<const bool>()[i] ? 1 : 0;
    default:
      ADD_FAILURE() << "no comparison of " << t.to_string();
      return 0;
  }
}

}  // namespace

const ir::OpRegistry& test_registry() {
  static const ir::OpRegistry* const registry = [] {
    auto* made = new ir::OpRegistry;
    ops::register_all(made);
    return made;
  }();
  return *registry;
}

const KernelTable& all_kernels() {
  static const KernelTable* const table = [] {
    auto* made = new KernelTable;
    register_kernels(made);
    return made;
  }();
  return *table;
}

Tensor Dice::tensor(DType dtype, const Shape& shape, double low, double high) {
  Tensor out = Tensor::empty(dtype, shape);
  const auto real = [&] { return low + (high - low) * static_cast<double>(random_()) * 0x1p-32; };
  const auto whole = [&] {
    return static_cast<double>(number(static_cast<int64_t>(low), static_cast<int64_t>(high)));
  };
  switch (dtype) {
    case DType::kFloat32:
      fill<float>(&out, real);
      break;
    case DType::kFloat64:
      fill<double>(&out, real);
      break;
    case DType::kInt32:
      fill<int32_t>(&out, whole);
      break;
    case DType::kInt64:
      fill<int64_t>(&out, whole);
      break;
    case DType::kUInt8:
      fill<uint8_t>(&out, whole);
      break;
    case DType::kBool:
      fill<bool>(&out, whole);
      break;
    default:
      ADD_FAILURE() << "no numbers of " << out.to_string();
  }
  return out;
}

void set_variables(resources::Manager* manager, const reference::Values& values) {
  for (const auto& [name, value] : values) {
    const resources::VariableDef def = {
        .name = name, .dtype = value.dtype(), .shape = value.shape()};
    const auto variable = manager->find_or_create<resources::Variable>(
        *resources::key_of("", name), [&] { return *resources::Variable::make(def); });
    SR_CHECK(variable.ok(), "{}", base::message_of(variable.status()));
    const Status assigned = (*variable)->assign(value);
    SR_CHECK(assigned.ok(), "{}", base::message_of(assigned));
  }
}

Tensor variable_of(const resources::Manager& manager, const std::string& name) {
  const auto variable = manager.find<resources::Variable>(*resources::key_of("", name));
  EXPECT_TRUE(variable.ok()) << variable.status();
  if (!variable.ok()) return {};
  const auto value = (*variable)->read();
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : Tensor();
}

passes::PassOptions passes_of(bool fuse) {
  if (!fuse) return {.fuse = false};
  return {.evaluate = [](const ir::Node& node, const std::vector<Tensor>& inputs) {
    return run_one_op(node, inputs, all_kernels());
  }};
}

Result<program::Program> compile_for_test(const ir::Graph& graph,
                                          const std::vector<ir::Output>& fetches,
                                          const std::vector<ir::NodeId>& targets,
                                          const passes::PassOptions& options) {
  SR_ASSIGN_OR_RETURN(passes::StepGraph step,
                      passes::run_passes(graph, fetches, targets, test_registry(), options));
  return program::compile(partition::undivided(std::move(step.graph), std::move(step.fetches),
                                               std::move(step.targets)));
}

Result<std::vector<Tensor>> run_step(Step* step, const program::Program& program,
                                     const reference::Values& feeds, uint64_t step_id) {
  step->begin(step_id);
  for (size_t i = 0; i < program.feeds.size(); ++i) {
    const auto value = feeds.find(program.feed_names[i]);
    if (value == feeds.end()) return base::not_found("no feed '{}'", program.feed_names[i]);
    SR_RETURN_IF_ERROR(step->feed(static_cast<int>(i), value->second));
  }
  SR_ASSIGN_OR_RETURN(const Step::Progress progress, step->advance());
  if (progress != Step::Progress::kDone) {
    return base::internal("the step waits for {}", step->waits_for());
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < program.fetches.size(); ++i) {
    out.push_back(step->fetch(static_cast<int>(i)));
  }
  return out;
}

void expect_close(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.to_string(), want.to_string());
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const double a = element(got, i);
    const double b = element(want, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ASSERT_LE(std::abs(a - b), tolerance * (1 + std::abs(b)))
        << "element " << i << ": " << a << " for " << b;
  }
}

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].to_string(), want[i].to_string());
    if (got[i].nbytes() == 0) continue;
    EXPECT_EQ(std::memcmp(got[i].raw(), want[i].raw(), got[i].nbytes()), 0) << "fetch " << i;
  }
}

std::vector<Tensor> LocalModel::run(const passes::PassOptions& options) {
  const auto step = compile_for_test(graph, fetches, {}, options);
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return {};
  BufferPool pool(1 << 20);
  const auto bound = BoundProgram::bind(*step, all_kernels(), {});
  EXPECT_TRUE(bound.ok()) << bound.status();
  if (!bound.ok()) return {};
  Step running(bound->get(), &pool, nullptr);
  std::vector<Tensor> out;
  for (int again = 0; again < 2; ++again) {
    const auto got = run_step(&running, *step, feeds, 1);
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok()) return {};
    std::vector<Tensor> copies;
    for (const Tensor& t : *got) copies.push_back(t.clone());
    if (again > 0) expect_same(copies, out);
    out = std::move(copies);
  }
  ops = ops_of(*step);
  return out;
}

std::set<std::string> ops_of(const program::Program& program) {
  std::set<std::string> out;
  for (const program::Instruction& instruction : program.instructions) {
    if (!instruction.op.empty()) out.insert(instruction.op);
  }
  return out;
}

}  // namespace sidereal::exec
