#include "sidereal/exec/restoring.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::exec {

using ckpt::CheckpointReader;
using resources::ChangesMade;
using resources::Variable;
using tensor::Tensor;

class RestoreWork::Job : public std::enable_shared_from_this<Job> {
 public:
  using Tensors = std::vector<Tensor>;

  Job(std::shared_ptr<sys::Disk> disk, std::function<void()> wake, std::string prefix,
      std::vector<SavedTensor> tensors, VariableLanes* lanes)
      : disk_(std::move(disk)),
        wake_(std::move(wake)),
        prefix_(std::move(prefix)),
        tensors_(std::move(tensors)),
        lanes_(lanes) {}

  void begin() {
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }

  std::optional<Result<Tensors>> step() {
    std::optional<Value> value;
    {
      const std::lock_guard lock(mutex_);
      if (result_.has_value()) return std::move(result_);
      value.swap(wanted_);
    }
    if (value.has_value()) assign_on(value->variable->owner()->lane(), *value);
    return std::nullopt;
  }

  void end(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = why;
    changed_.notify_all();
  }

 private:
  /// What a variable is to be.
  struct Value {
    Variable* variable = nullptr;
    std::shared_ptr<Tensor> tensor;  // Nobody else holds its memory.
    std::shared_ptr<ChangesMade> changes_made;
    ckpt::Entry::Pushed pushed;
  };

  // --- On lanes.

  static Status assign(const Value& value) {
    SR_RETURN_IF_ERROR(value.variable->take(std::move(*value.tensor)));
    *value.variable->changes_made() = std::move(*value.changes_made);
    const resources::PushCounts* const counts = resources::PushCounts::here();
    // What was pushed to another life of the task is not counted in this one.
    resources::Staleness::Pushed pushed;
    if (counts != nullptr && value.pushed.life == counts->life()) {
      pushed = {.pushes = value.pushed.pushes,
                .rows = value.pushed.rows,
                .is_table = !value.pushed.table.empty()};
    }
    value.variable->staleness()->note_restored(pushed);
    return {};
  }

  void assign_on(int lane, const Value& value) {
    const auto run = [self = shared_from_this(), lane, value] {
      const int owner = value.variable->owner()->lane();
      if (owner != lane) return self->assign_on(owner, value);
      self->assigned(assign(value));
    };
    if (lanes_->post(lane, run)) return;
    end(base::unavailable("lane {}, which has a variable to restore, is stopping", lane));
  }

  void assigned(const Status& status) {
    if (!status.ok()) return end(status);
    const std::lock_guard lock(mutex_);
    is_assigned_ = true;
    changed_.notify_all();
  }

  // --- On the thread that reads.

  void run() {
    Result<Tensors> result = read_all();
    {
      const std::lock_guard lock(mutex_);
      result_ = std::move(result);
    }
    wake_();
  }

  Result<Tensors> read_all() {
    SR_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::open(disk_, prefix_));
    SR_RETURN_IF_ERROR(check_all(*reader));
    Tensors out;
    for (const SavedTensor& wanted : tensors_) {
      if (wanted.variable == nullptr) {
        SR_ASSIGN_OR_RETURN(Tensor value, reader->read(wanted.name));
        out.push_back(std::move(value));
        continue;
      }
      SR_RETURN_IF_ERROR(restore(reader.get(), wanted));
    }
    return out;
  }

  /// Whether all that is wanted is there and fits, before any of it is changed.
  [[nodiscard]] Status check_all(const CheckpointReader& reader) const {
    for (const SavedTensor& wanted : tensors_) {
      const ckpt::StoredTensor* const stored = reader.find(wanted.name);
      if (stored == nullptr) {
        return base::not_found(
            "checkpoint {} has no tensor '{}': it is of another model, or was saved under another "
            "name",
            prefix_, wanted.name);
      }
      const bool is_variable = wanted.variable != nullptr;
      const tensor::DType dtype = is_variable ? wanted.variable->def().dtype : wanted.value.dtype();
      const bool shape_fits =
          !wanted.shape.has_rank()
              ? !is_variable || resources::fits(wanted.variable->def().shape, stored->shape)
              : wanted.shape == stored->shape;
      if (dtype == stored->dtype && shape_fits) continue;
      return base::invalid_argument(
          "checkpoint {} has '{}' as {}{}; what is restored is {}{}: it is of another model",
          prefix_, wanted.name, tensor::name_of(stored->dtype), stored->shape.to_string(),
          tensor::name_of(dtype),
          (wanted.shape.has_rank() || !is_variable ? wanted.shape : wanted.variable->def().shape)
              .to_string());
    }
    return {};
  }

  Status restore(CheckpointReader* reader, const SavedTensor& wanted) {
    const ckpt::Slice slice = wanted.shape.has_rank()
                                  ? wanted.slice
                                  : ckpt::whole_slice(reader->find(wanted.name)->shape);
    SR_ASSIGN_OR_RETURN(Tensor value, reader->read(wanted.name, slice));
    SR_ASSIGN_OR_RETURN(ChangesMade made,
                        ChangesMade::decode(reader->changes_made(wanted.name, slice)));
    const Value is{.variable = wanted.variable.get(),
                   .tensor = std::make_shared<Tensor>(std::move(value)),
                   .changes_made = std::make_shared<ChangesMade>(std::move(made)),
                   .pushed = reader->pushed(wanted.name, slice)};
    if (lanes_ == nullptr) return assign(is);
    {
      const std::lock_guard lock(mutex_);
      is_assigned_ = false;
      wanted_ = is;
    }
    wake_();
    std::unique_lock lock(mutex_);
    // Its end comes too when the step ends, for whatever reason.
    changed_.wait(lock, [&] { return is_assigned_ || !status_.ok(); });
    return status_;
  }

  const std::shared_ptr<sys::Disk> disk_;
  const std::function<void()> wake_;
  const std::string prefix_;
  const std::vector<SavedTensor> tensors_;
  VariableLanes* const lanes_;  // For the step's lane, and what it posts.

  std::mutex mutex_;
  std::condition_variable changed_;
  Status status_;
  std::optional<Value> wanted_;
  bool is_assigned_ = false;
  std::optional<Result<Tensors>> result_;
};

std::unique_ptr<RestoreWork> RestoreWork::start(std::shared_ptr<sys::Disk> disk,
                                                std::function<void()> wake, std::string prefix,
                                                std::vector<SavedTensor> tensors,
                                                VariableLanes* lanes) {
  auto job = std::make_shared<Job>(std::move(disk), std::move(wake), std::move(prefix),
                                   std::move(tensors), lanes);
  job->begin();
  return std::unique_ptr<RestoreWork>(new RestoreWork(std::move(job)));
}

RestoreWork::~RestoreWork() { job_->end(base::cancelled("nobody waits for the checkpoint")); }

std::optional<Result<std::vector<Tensor>>> RestoreWork::step() { return job_->step(); }

}  // namespace sidereal::exec
