#include "sidereal/app/ps_lane.h"

#include <algorithm>
#include <cmath>

#include "sidereal/app/lane_call.h"
#include "sidereal/app/lane_trace.h"
#include "sidereal/base/log.h"
#include "sidereal/kernels/shard_layout.h"

namespace sidereal::app {

using base::invalid_argument;
using tensor::Tensor;

namespace {
constexpr size_t kProgramsMax = 65536;
}  // namespace

/// A shard of the store behind the interface programs see.
class PsLane::Shard final : public ports::ParameterShard {
 public:
  explicit Shard(std::unique_ptr<store::DenseVariable> dense) : dense_(std::move(dense)) {}
  explicit Shard(std::unique_ptr<store::EmbeddingShard> rows) : rows_(std::move(rows)) {}

  Status gather(std::span<const int64_t> rows, float* out) override {
    return rows_->gather(rows, out);
  }
  Status apply_rows(std::span<const int64_t> rows, const float* grads) override {
    return rows_->apply(rows, grads);
  }
  Result<Tensor> read() override { return dense_->read(); }
  Status apply_dense(const Tensor& grad) override { return dense_->apply(grad); }
  [[nodiscard]] int64_t dim() const override { return rows_ == nullptr ? 0 : rows_->dim(); }

  [[nodiscard]] int64_t bytes() const {
    return static_cast<int64_t>(rows_ == nullptr ? dense_->bytes() : rows_->bytes());
  }
  void scale_learning_rate(double factor) {
    if (rows_ == nullptr) {
      dense_->scale_learning_rate(factor);
    } else {
      rows_->scale_learning_rate(factor);
    }
  }
  [[nodiscard]] int64_t rows_touched() const {
    return rows_ == nullptr ? 0 : rows_->counters().rows_read + rows_->counters().rows_written;
  }
  /// Items [from, from + count) as bytes: rows of an embedding, elements of a dense variable.
  [[nodiscard]] std::string bytes_of(int64_t from, int64_t count) const {
    const int64_t items = rows_ == nullptr ? dense_->read().num_elements() : rows_->rows();
    const int64_t width = rows_ == nullptr ? 1 : rows_->dim();
    from = std::clamp<int64_t>(from, 0, items);
    count = std::clamp<int64_t>(count, 0, items - from);
    std::string out(static_cast<size_t>(count * width) * sizeof(float), '\0');
    if (out.empty()) return out;
    if (rows_ == nullptr) {
      __builtin_memcpy(out.data(), dense_->read().data<const float>().data() + from, out.size());
    } else {
      const Status read = rows_->read_rows(from, count, reinterpret_cast<float*>(out.data()));
      SR_CHECK(read.ok(), "{}", base::message_of(read));
    }
    return out;
  }

 private:
  std::unique_ptr<store::DenseVariable> dense_;
  std::unique_ptr<store::EmbeddingShard> rows_;
};

PsLane::PsLane(const exec::KernelTable* table)
    : table_(table), pool_(size_t{1} << 30), variables_(std::make_shared<Variables>()) {}

Result<std::unique_ptr<PsLane>> PsLane::create(
    const lane::LaneOptions& lane, const transport::Identity& identity,
    const config::Options& options, const sys::Address& address, const exec::KernelTable* table,
    std::shared_ptr<const security::Credentials> credentials) {
  std::unique_ptr<PsLane> made(new PsLane(table));
  SR_ASSIGN_OR_RETURN(made->lane_, lane::Lane::create(lane));
  SR_ASSIGN_OR_RETURN(
      made->endpoint_,
      transport::Endpoint::create(made->lane_.get(), identity, options, std::move(credentials)));
  SR_ASSIGN_OR_RETURN(made->acceptor_,
                      transport::Acceptor::create(made->endpoint_.get(), address, made.get()));
  return made;
}

PsLane::~PsLane() {
  const Status stopped = lane_->stop();
  if (!stopped.ok()) base::log_error("stop failed error=\"{}\"", base::message_of(stopped));
}

Result<int64_t> PsLane::create_variables(const std::vector<VariableSpec>& specs) {
  auto made = std::make_shared<Variables>();
  int64_t bytes = 0;
  for (const VariableSpec& spec : specs) {
    std::unique_ptr<Shard> shard;
    if (spec.embedding) {
      if (spec.shape.rank() != 2 || spec.lanes.empty()) {
        return invalid_argument("embedding '{}' of shape {} over {} tasks", spec.name,
                                spec.shape.to_string(), spec.lanes.size());
      }
      for (const int32_t lanes : spec.lanes) {
        if (lanes < 1 || lanes > 65536) return invalid_argument("a task with {} lanes", lanes);
      }
      if (spec.shape.dim(0) < 0 || spec.shape.dim(0) >= int64_t{1} << 40) {
        return invalid_argument("embedding '{}' of {} rows", spec.name, spec.shape.dim(0));
      }
      SR_ASSIGN_OR_RETURN(auto rows,
                          store::EmbeddingShard::create(
                              {.name = spec.name,
                               .layout = kernels::ShardLayout(spec.shape.dim(0), spec.lanes),
                               .shard = spec.shard,
                               .dim = spec.shape.dim(1),
                               .rule = spec.rule,
                               .initializer = spec.initializer}));
      shard = std::make_unique<Shard>(std::move(rows));
    } else {
      SR_ASSIGN_OR_RETURN(auto dense,
                          store::DenseVariable::create({.name = spec.name,
                                                        .shape = spec.shape,
                                                        .rule = spec.rule,
                                                        .initializer = spec.initializer}));
      shard = std::make_unique<Shard>(std::move(dense));
    }
    bytes += shard->bytes();
    const auto key = std::pair(spec.name, spec.embedding ? int64_t{spec.shard} : int64_t{-1});
    if (!made->emplace(key, std::move(shard)).second) {
      return invalid_argument("variable '{}' is named twice", spec.name);
    }
  }
  // Programs point into the old variables, so both go together, on the lane.
  auto old = variables_;
  SR_RETURN_IF_ERROR(call_on_lane<bool>(lane_.get(), [this, old] {
                       programs_.clear();
                       return true;
                     }).status());
  const std::lock_guard lock(variables_mutex_);
  variables_ = std::move(made);
  return bytes;
}

Status PsLane::scale_learning_rate(double factor) {
  if (!std::isfinite(factor) || factor < 0) {
    return invalid_argument("the factor of the learning rate is {}; it must be 0 or more", factor);
  }
  return call_on_lane<bool>(lane_.get(),
                            [held = variables_, factor] {
                              for (const auto& [key, shard] : *held)
                                shard->scale_learning_rate(factor);
                              return true;
                            })
      .status();
}

Result<ports::ParameterShard*> PsLane::find(std::string_view variable, int64_t shard) {
  const auto it = variables_->find(std::pair(std::string(variable), shard));
  if (it == variables_->end()) {
    return base::not_found("lane {} holds no variable '{}' (shard {}); create it first",
                           lane_->name(), variable, shard);
  }
  return it->second.get();
}

Result<uint64_t> PsLane::register_program(const std::string& bytes) {
  const uint64_t hash = program::content_hash(bytes);
  SR_ASSIGN_OR_RETURN(const bool known, call_on_lane<bool>(lane_.get(), [this, hash] {
                        return programs_.contains(hash);
                      }));
  if (known) return hash;
  SR_ASSIGN_OR_RETURN(program::Program program, program::decode(bytes));
  if (!program::all_calls(program).empty())
    return invalid_argument("a ps makes no calls of its own");
  // A call must end by itself.
  if (!program.bodies.empty())
    return base::unimplemented("functions, branches and loops do not run on a ps");
  SR_ASSIGN_OR_RETURN(auto bound,
                      exec::BoundProgram::bind(std::move(program), *table_, {.parameters = this}));
  auto registered = std::make_shared<Registered>();
  registered->step = std::make_unique<exec::Step>(bound.get(), &pool_, nullptr);
  registered->bound = std::move(bound);
  SR_ASSIGN_OR_RETURN(const bool room, call_on_lane<bool>(lane_.get(), [this, hash, registered] {
                        if (programs_.size() >= kProgramsMax) return false;
                        programs_.emplace(hash, std::move(*registered));
                        return true;
                      }));
  if (!room) {
    return base::resource_exhausted("{} holds {} programs, as many as it may; restart the cluster",
                                    lane_->name(), kProgramsMax);
  }
  return hash;
}

Result<std::string> PsLane::read(const std::string& name, int32_t shard, int64_t from,
                                 int64_t count) {
  SR_RETURN_IF_ERROR(find(name, shard).status());
  auto held = variables_;
  Shard* const found = held->find(std::pair(name, int64_t{shard}))->second.get();
  return call_on_lane<std::string>(
      lane_.get(), [held, found, from, count] { return found->bytes_of(from, count); });
}

Status PsLane::start_trace(uint64_t first, uint64_t end) {
  return call_on_lane<bool>(lane_.get(),
                            [this, first, end] {
                              trace_ = make_lane_trace(lane_.get());
                              trace_first_ = first;
                              trace_end_ = end;
                              return true;
                            })
      .status();
}

Result<std::string> PsLane::take_trace(exec::ChromeOptions options) {
  return call_on_lane<std::string>(lane_.get(), [this, options]() mutable -> std::string {
    if (trace_ == nullptr) return "";
    options.offset_ns += unix_offset_ns(*lane_);
    const std::unique_ptr<exec::Trace> taken = std::move(trace_);
    return exec::to_chrome(taken->events(), options);
  });
}

Result<PsLaneFigures> PsLane::figures() {
  std::shared_ptr<Variables> held;
  {
    const std::lock_guard lock(variables_mutex_);
    held = variables_;
  }
  return call_on_lane<PsLaneFigures>(lane_.get(), [this, held] {
    PsLaneFigures figures = figures_;
    for (const auto& [key, shard] : *held) figures.rows += shard->rows_touched();
    return figures;
  });
}

Result<Tensor> PsLane::allocate(const transport::Connection& from, const wire::FrameHeader& call,
                                int position, tensor::DType dtype, const tensor::Shape& shape) {
  (void)from, (void)call, (void)position;
  return pool_.try_tensor(dtype, shape);
}

Status PsLane::run_call(Registered& program, const wire::FrameHeader& call,
                        std::span<const wire::SlotEntry> slots, std::span<Tensor> feeds) {
  const size_t wanted = program.bound->program().feeds.size();
  if (feeds.size() != wanted) {
    return invalid_argument("{} feeds for a program that takes {}", feeds.size(), wanted);
  }
  const bool traced = trace_ != nullptr && call.step >= trace_first_ && call.step < trace_end_;
  program.step->set_trace(traced ? trace_.get() : nullptr, 0, "call");
  program.step->begin(call.step);
  fed_.assign(wanted, false);
  for (size_t i = 0; i < feeds.size(); ++i) {
    const uint32_t slot = slots[i].slot;
    if (slot >= wanted || fed_[slot]) return invalid_argument("feed {} is not wanted", slot);
    if (!feeds[i].defined()) return base::unimplemented("feed {} is dead", slot);
    fed_[slot] = true;
    SR_RETURN_IF_ERROR(program.step->feed(static_cast<int>(slot), std::move(feeds[i])));
  }
  SR_ASSIGN_OR_RETURN(const exec::Step::Progress progress, program.step->advance());
  if (progress != exec::Step::Progress::kDone) return base::internal("a ps program waits");
  fetches_.clear();
  for (size_t i = 0; i < program.bound->program().fetches.size(); ++i) {
    fetches_.push_back(program.step->fetch(static_cast<int>(i)));
  }
  // What the step still held would make every dense variable leave a version behind.
  program.step->end();
  return {};
}

void PsLane::on_call(const transport::Connection& from, const transport::Call& call,
                     std::span<Tensor> feeds) {
  ++figures_.calls;
  const wire::FrameHeader& header = call.header;
  const auto it = header.kind == 0 ? programs_.find(header.program) : programs_.end();
  if (it == programs_.end()) {
    acceptor_->reply_error(from.id, header.call_id,
                           base::not_found("{} knows no program {:016x}; register it first",
                                           lane_->name(), header.program));
    return;
  }
  const Status status = run_call(it->second, header, call.slots, feeds);
  if (status.ok()) {
    acceptor_->reply(from.id, header.call_id, fetches_);
  } else {
    acceptor_->reply_error(from.id, header.call_id, base::with_context(status, lane_->name()));
  }
  fetches_.clear();
}

void PsLane::on_closed(const transport::Connection& from, const Status& why) {
  base::log_debug("connection closed peer={} lane={} why=\"{}\"", from.task, lane_->name(),
                  base::message_of(why));
}

}  // namespace sidereal::app
