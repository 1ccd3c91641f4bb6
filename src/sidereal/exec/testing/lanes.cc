#include "sidereal/exec/testing/lanes.h"

#include <gtest/gtest.h>
#include <cstring>

#include <cmath>
#include <utility>

#include "sidereal/exec/one_op.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"

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

/// A variable (rows of it, for an embedding) behind the interface programs see.
class TestVariables::Shard final : public ports::ParameterShard {
 public:
  Shard(Tensor* value, const passes::ShardRows* rows, float rate)
      : value_(value), rows_(rows), rate_(rate) {}

  Status gather(std::span<const int64_t> rows, float* out) override {
    for (const int64_t local : rows) {
      SR_RETURN_IF_ERROR(check(local));
      const float* from = row(local);
      out = std::copy(from, from + dim(), out);
    }
    return {};
  }
  Status apply_rows(std::span<const int64_t> rows, const float* grads) override {
    for (const int64_t local : rows) {
      SR_RETURN_IF_ERROR(check(local));
      for (int64_t d = 0; d < dim(); ++d) row(local)[d] -= rate_ * *grads++;
    }
    return {};
  }
  Result<Tensor> read() override { return *value_; }
  Status apply_dense(const Tensor& grad) override {
    if (grad.dtype() != DType::kFloat32 || !(grad.shape() == value_->shape())) {
      return base::invalid_argument("{} does not fit", grad.to_string());
    }
    // A new version; somebody may still hold the old one.
    *value_ = value_->clone();
    const auto from = grad.data<const float>();
    const auto to = value_->data<float>();
    for (size_t i = 0; i < to.size(); ++i) to[i] -= rate_ * from[i];
    return {};
  }
  [[nodiscard]] int64_t dim() const override {
    return rows_ == nullptr ? 0 : value_->shape().dim(1);
  }

 private:
  [[nodiscard]] Status check(int64_t local) const {
    if (local >= 0 && local < rows_->rows()) return {};
    return base::out_of_range("row {} of {}", local, rows_->rows());
  }
  [[nodiscard]] float* row(int64_t local) const {
    return value_->data<float>().data() + rows_->global_row(local) * dim();
  }

  Tensor* value_;
  const passes::ShardRows* rows_;
  float rate_;
};

TestVariables::TestVariables(reference::Values* values, const passes::Placement* placement,
                             float rate)
    : values_(values), placement_(placement), rate_(rate) {}

TestVariables::~TestVariables() = default;

Result<ports::ParameterShard*> TestVariables::find(std::string_view variable, int64_t shard) {
  const auto place = placement_->find(std::string(variable));
  const auto value = values_->find(variable);
  if (place == placement_->end() || value == values_->end()) {
    return base::not_found("no variable '{}'", variable);
  }
  const auto& shards = place->second.shards;
  if (shard >= static_cast<int64_t>(shards.size()) || (shard < 0) != shards.empty()) {
    return base::not_found("no shard {} of '{}'", shard, variable);
  }
  auto& made = shards_[{std::string(variable), shard}];
  if (made == nullptr) {
    made = std::make_unique<Shard>(&value->second, shard < 0 ? nullptr : &shards[shard], rate_);
  }
  return made.get();
}

TestExchange::TestExchange(const program::CompiledStep* step, ports::Parameters* variables,
                           BufferPool* pool)
    : step_(step) {
  for (const program::RemoteProgram& remote : step->remotes) {
    // As a ps gets it: from bytes.
    auto decoded = program::decode(remote.bytes);
    SR_CHECK(decoded.ok(), "{}", base::message_of(decoded.status()));
    auto bound = BoundProgram::bind(*std::move(decoded), all_kernels(), {.parameters = variables});
    SR_CHECK(bound.ok(), "{}", base::message_of(bound.status()));
    ops_run.merge(ops_of(remote.program));
    Remote made;
    made.bound = *std::move(bound);
    made.step = std::make_unique<Step>(made.bound.get(), pool, nullptr);
    remotes_.push_back(std::move(made));
  }
}

TestExchange::~TestExchange() = default;

Status TestExchange::start(int call, uint64_t step, std::span<const Tensor> feeds,
                           ports::CallCompletion* completion) {
  waiting_.push_back({call, step, {feeds.begin(), feeds.end()}, completion});
  return {};
}

bool TestExchange::is_first_of_its_lane(size_t which) const {
  const auto lane = [this](size_t i) { return step_->remotes[waiting_[i].call].location; };
  for (size_t i = 0; i < which; ++i) {
    if (lane(i) == lane(which)) return false;
  }
  return true;
}

void TestExchange::answer_any(Dice* dice) {
  ASSERT_FALSE(waiting_.empty()) << "the step waits for nobody";
  std::vector<size_t> ready;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (is_first_of_its_lane(i)) ready.push_back(i);
  }
  answer(dice->pick(ready));
}

void TestExchange::answer(size_t which) {
  const Waiting waiting = std::move(waiting_[which]);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(which));
  const Status status = run(waiting);
  if (!status.ok()) waiting.completion->done(status, {});
}

void TestExchange::fail(size_t which, const Status& why) {
  const Waiting waiting = std::move(waiting_[which]);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(which));
  waiting.completion->done(why, {});
}

Status TestExchange::run(const Waiting& waiting) {
  Step& step = *remotes_[waiting.call].step;
  step.begin(waiting.step);
  for (size_t i = 0; i < waiting.feeds.size(); ++i) {
    SR_RETURN_IF_ERROR(step.feed(static_cast<int>(i), waiting.feeds[i]));
  }
  SR_ASSIGN_OR_RETURN(const Step::Progress progress, step.advance());
  if (progress != Step::Progress::kDone) return base::internal("a ps program waits");
  std::vector<Tensor> out;
  const auto count = static_cast<int>(remotes_[waiting.call].bound->program().fetches.size());
  for (int i = 0; i < count; ++i) {
    // Through memory of the receiver, as over a wire.
    const Tensor& value = step.fetch(i);
    SR_ASSIGN_OR_RETURN(const Tensor copy,
                        waiting.completion->allocate(i, value.dtype(), value.shape()));
    if (value.nbytes() > 0) __builtin_memcpy(copy.raw(), value.raw(), value.nbytes());
    out.push_back(copy);
  }
  step.end();
  waiting.completion->done({}, out);
  return {};
}

Result<TestStep> compile_for_test(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                                  const std::vector<ir::NodeId>& targets,
                                  const passes::Topology& topology, bool fuse) {
  passes::PassOptions options = {.fuse = fuse};
  if (fuse) {
    options.evaluate = [](const ir::Node& node, const std::vector<Tensor>& inputs) {
      return run_one_op(node, inputs, all_kernels());
    };
  }
  return compile_for_test(graph, fetches, targets, topology, options);
}

Result<TestStep> compile_for_test(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                                  const std::vector<ir::NodeId>& targets,
                                  const passes::Topology& topology,
                                  const passes::PassOptions& options,
                                  const partition::PullPushOptions& cut) {
  TestStep out;
  SR_ASSIGN_OR_RETURN(passes::Plan plan, passes::run_passes(graph, fetches, targets, topology,
                                                            test_registry(), options));
  SR_ASSIGN_OR_RETURN(
      const partition::PartitionedGraph parts,
      partition::pull_push_by_layers(plan.graph, plan.fetches, plan.targets, test_registry(), cut));
  SR_ASSIGN_OR_RETURN(out.compiled, program::compile(parts));
  out.placement = std::move(plan.placement);
  return out;
}

Result<std::vector<Tensor>> run_step(Step* step, const program::Program& program,
                                     const reference::Values& feeds, uint64_t step_id,
                                     TestExchange* exchange, Dice* dice) {
  step->begin(step_id);
  for (size_t i = 0; i < program.feeds.size(); ++i) {
    const auto value = feeds.find(program.feed_names[i]);
    if (value == feeds.end()) return base::not_found("no feed '{}'", program.feed_names[i]);
    SR_RETURN_IF_ERROR(step->feed(static_cast<int>(i), value->second));
  }
  while (true) {
    SR_ASSIGN_OR_RETURN(const Step::Progress progress, step->advance());
    if (progress == Step::Progress::kDone) break;
    if (exchange->waiting() == 0) return base::internal("the step waits for nobody");
    exchange->answer_any(dice);
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
  const auto step = compile_for_test(graph, fetches, {}, {{1}}, options);
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return {};
  BufferPool pool(1 << 20);
  const auto bound = BoundProgram::bind(step->compiled.worker, all_kernels(), {});
  EXPECT_TRUE(bound.ok()) << bound.status();
  if (!bound.ok()) return {};
  Step running(bound->get(), &pool, nullptr);
  std::vector<Tensor> out;
  for (int again = 0; again < 2; ++again) {
    const auto got = run_step(&running, step->compiled.worker, feeds, 1, nullptr, &dice);
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok()) return {};
    std::vector<Tensor> copies;
    for (const Tensor& t : *got) copies.push_back(t.clone());
    if (again > 0) expect_same(copies, out);
    out = std::move(copies);
  }
  ops = ops_of(step->compiled.worker);
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
