#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/on_thread.h"
#include "sidereal/exec/resource_util.h"
#include "sidereal/exec/restoring.h"
#include "sidereal/exec/saving.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::exec {
namespace {

using resources::Manager;
using resources::Variable;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

using Strings = std::vector<std::string>;

/// Where a kernel saves and restores.
struct Place {
  Manager* manager = nullptr;
  std::shared_ptr<sys::Disk> disk;
  VariableLanes* lanes = nullptr;
  std::function<void()> wake = nullptr;

  static Result<Place> of(const BindContext& bind) {
    const Environment& at = bind.environment;
    Place out{.disk = at.disk, .lanes = at.lanes};
    SR_ASSIGN_OR_RETURN(out.manager, manager_of(bind));
    if (at.disk == nullptr) {
      return base::failed_precondition("checkpoints are written and read where there are files");
    }
    out.wake = [manager = out.manager, keep = at.keep, wake = at.wake] {
      manager->changed();
      if (wake) wake();
    };
    return out;
  }
};

/// The scalar string of input `i`.
Result<std::string> text_of(const KernelContext& c, int i) {
  SR_ASSIGN_OR_RETURN(const std::string_view text, handle_of(c, i));
  return std::string(text);
}

/// A prefix that files can have.
Result<std::string> prefix_of(const KernelContext& c) {
  SR_ASSIGN_OR_RETURN(std::string out, text_of(c, 0));
  constexpr size_t kBytesMax = 4000;
  const bool is_good = !out.empty() && out.size() <= kBytesMax && !out.ends_with('/') &&
                       out.find('\0') == std::string::npos;
  if (is_good) return out;
  return base::invalid_argument(
      "a checkpoint needs a prefix, as 'DIRECTORY/model.ckpt-5', of at most {} bytes; {} are given",
      kBytesMax, out.size());
}

uint64_t random_number() { return sys::posix::create_random()->next(); }

/// The variables of the inputs from `first` on, as the attributes say.
class Variables {
 public:
  static Result<Variables> of(const BindContext& bind, int first) {
    Variables out;
    out.first_ = first;
    SR_ASSIGN_OR_RETURN(out.names_, ir::get_attr<Strings>(bind.instruction.attrs, "names"));
    const size_t count = bind.instruction.inputs.size() - static_cast<size_t>(first);
    const auto slices = ir::attr_or(bind.instruction.attrs, "slices", Strings(count));
    if (out.names_.size() != count || slices.size() != count) {
      return base::invalid_argument("{} names and {} slices for {} inputs", out.names_.size(),
                                    slices.size(), bind.instruction.inputs.size());
    }
    for (const std::string& slice : slices) {
      if (slice.empty()) {
        out.slices_.push_back({.whole = Shape::unknown_rank(), .slice = {}});
        continue;
      }
      SR_ASSIGN_OR_RETURN(ckpt::SliceOfShape parsed, ckpt::parse_slice(slice));
      out.slices_.push_back(std::move(parsed));
    }
    return out;
  }

  Result<std::vector<SavedTensor>> find(const KernelContext& c, const Manager& manager) const {
    std::vector<SavedTensor> out;
    for (size_t i = 0; i < names_.size(); ++i) {
      SavedTensor& one = out.emplace_back();
      one.name = names_[i];
      one.shape = slices_[i].whole;
      if (one.shape.has_rank()) one.slice = slices_[i].slice;
      SR_ASSIGN_OR_RETURN(one.variable,
                          find_resource<Variable>(c, first_ + static_cast<int>(i), manager));
    }
    return out;
  }

 private:
  int first_ = 0;
  Strings names_;
  std::vector<ckpt::SliceOfShape> slices_;
};

/// Goes on with the saving that the step has begun, or begins it with what `request` gives.
template <class Request>
Status save(KernelContext& c, const Place& place, const Request& request) {
  std::shared_ptr<void>& state = c.waiting_state();
  if (state == nullptr) {
    SR_ASSIGN_OR_RETURN(SaveRequest asked, request());
    asked.disk = place.disk;
    asked.wake = place.wake;
    SR_ASSIGN_OR_RETURN(asked.prefix, prefix_of(c));
    asked.cut = random_number();
    state = std::shared_ptr<SaveWork>(SaveWork::start(std::move(asked), place.lanes));
  }
  SaveWork& work = *static_cast<SaveWork*>(state.get());
  auto done = work.step();
  if (!done.has_value()) {
    SR_ASSIGN_OR_RETURN(const std::string_view prefix, handle_of(c, 0));
    return c.wait_for("checkpoint '{}' to be written: {}", prefix, work.progress());
  }
  state.reset();
  if (!done->ok()) {
    SR_ASSIGN_OR_RETURN(const std::string_view prefix, handle_of(c, 0));
    return base::with_context(done->status(), fmt::format("saving checkpoint '{}'", prefix));
  }
  c.set_output(0, Tensor::strings(Shape(), std::vector<std::string>{**std::move(done)}));
  return {};
}

struct Shard {
  int64_t shard = 0;
  int64_t shards = 1;

  static Result<Shard> of(const BindContext& bind) {
    Shard out;
    SR_ASSIGN_OR_RETURN(out.shard, ir::get_attr<int64_t>(bind.instruction.attrs, "shard"));
    SR_ASSIGN_OR_RETURN(out.shards, ir::get_attr<int64_t>(bind.instruction.attrs, "shards"));
    return out;
  }
};

Result<std::unique_ptr<Kernel>> save_variables(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const Place place, Place::of(bind));
  SR_ASSIGN_OR_RETURN(const Variables variables, Variables::of(bind, 2));
  SR_ASSIGN_OR_RETURN(const Shard shard, Shard::of(bind));
  const auto pace = ir::attr_or(bind.instruction.attrs, "bytes_per_second", int64_t{0});
  const bool tracks = ir::attr_or(bind.instruction.attrs, "tracks_changes", false);
  return make_kernel([=](KernelContext& c) -> Status {
    return save(c, place, [&]() -> Result<SaveRequest> {
      SaveRequest out{.shard = shard.shard, .shards = shard.shards, .bytes_per_second = pace};
      SR_ASSIGN_OR_RETURN(const std::string base, text_of(c, 1));
      SR_ASSIGN_OR_RETURN(out.bases, ckpt::parse_cut(base));
      out.tracks = tracks || !out.bases.empty();
      SR_ASSIGN_OR_RETURN(out.tensors, variables.find(c, *place.manager));
      return out;
    });
  });
}

Result<std::unique_ptr<Kernel>> save_tensors(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const Place place, Place::of(bind));
  SR_ASSIGN_OR_RETURN(const auto names, ir::get_attr<Strings>(bind.instruction.attrs, "names"));
  SR_ASSIGN_OR_RETURN(const Shard shard, Shard::of(bind));
  if (names.size() + 1 != bind.instruction.inputs.size()) {
    return base::invalid_argument("{} names for {} inputs", names.size(),
                                  bind.instruction.inputs.size());
  }
  return make_kernel([=](KernelContext& c) -> Status {
    return save(c, place, [&]() -> Result<SaveRequest> {
      SaveRequest out{.shard = shard.shard, .shards = shard.shards};
      for (size_t i = 0; i < names.size(); ++i) {
        SavedTensor& one = out.tensors.emplace_back();
        one.name = names[i];
        one.shape = Shape::unknown_rank();
        // The memory of an input is used again before all is written.
        one.value = c.input(static_cast<int>(i) + 1).clone();
      }
      return out;
    });
  });
}

/// Reads the parts, and puts the index in place.
Result<std::string> commit(const Place& place, const std::string& prefix, const std::string& base,
                           const Strings& parts) {
  std::vector<ckpt::Index> read;
  for (const std::string& part : parts) {
    SR_ASSIGN_OR_RETURN(ckpt::Index index, ckpt::decode(part, "a part of a checkpoint"));
    read.push_back(std::move(index));
  }
  const bool has_increments = std::ranges::any_of(read, [](const ckpt::Index& index) {
    return std::ranges::any_of(index.entries,
                               [](const ckpt::Entry& entry) { return entry.is_increment; });
  });
  SR_ASSIGN_OR_RETURN(const ckpt::Index index,
                      ckpt::merge(read, has_increments ? sys::file_name_of(base) : ""));
  SR_RETURN_IF_ERROR(ckpt::write_index(place.disk.get(), prefix, index, random_number()));
  return ckpt::cut_text(index.cuts);
}

Result<std::unique_ptr<Kernel>> commit_checkpoint(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const Place place, Place::of(bind));
  return make_kernel([=](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::string prefix, prefix_of(c));
    SR_ASSIGN_OR_RETURN(const std::string base, text_of(c, 1));
    Strings parts;
    for (int i = 2; i < c.num_inputs(); ++i) {
      SR_ASSIGN_OR_RETURN(std::string part, text_of(c, i));
      parts.push_back(std::move(part));
    }
    std::shared_ptr<void>& state = c.waiting_state();
    if (state == nullptr) {
      state = OnThread::start(place.wake, [place, prefix, base, parts = std::move(parts)] {
        return commit(place, prefix, base, parts);
      });
    }
    std::optional<Result<std::string>> done = static_cast<OnThread*>(state.get())->poll();
    if (!done.has_value()) return c.wait_for("the index of checkpoint '{}'", prefix);
    state.reset();
    SR_RETURN_IF_ERROR(
        base::with_context(done->status(), fmt::format("saving checkpoint '{}'", prefix)));
    c.set_output(0, Tensor::strings(Shape(), std::vector<std::string>{**std::move(done)}));
    return {};
  });
}

/// Goes on with the restoring that the step has begun, or begins it.
template <class Wanted>
Result<std::optional<std::vector<Tensor>>> restore(KernelContext& c, const Place& place,
                                                   const Wanted& wanted) {
  std::shared_ptr<void>& state = c.waiting_state();
  if (state == nullptr) {
    SR_ASSIGN_OR_RETURN(std::string prefix, prefix_of(c));
    SR_ASSIGN_OR_RETURN(std::vector<SavedTensor> tensors, wanted());
    state = std::shared_ptr<RestoreWork>(RestoreWork::start(
        place.disk, place.wake, std::move(prefix), std::move(tensors), place.lanes));
  }
  auto done = static_cast<RestoreWork*>(state.get())->step();
  if (!done.has_value()) return std::optional<std::vector<Tensor>>();
  state.reset();
  SR_ASSIGN_OR_RETURN(std::vector<Tensor> out, *std::move(done));
  return std::optional(std::move(out));
}

Status wait_for_restoring(KernelContext& c) {
  SR_ASSIGN_OR_RETURN(const std::string_view prefix, handle_of(c, 0));
  return c.wait_for("checkpoint '{}' to be read", prefix);
}

Result<std::unique_ptr<Kernel>> restore_variables(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const Place place, Place::of(bind));
  SR_ASSIGN_OR_RETURN(const Variables variables, Variables::of(bind, 1));
  return make_kernel([=](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const auto done,
                        restore(c, place, [&] { return variables.find(c, *place.manager); }));
    if (!done.has_value()) return wait_for_restoring(c);
    c.set_output(0, Tensor::scalar(true));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> restore_tensors(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(const Place place, Place::of(bind));
  SR_ASSIGN_OR_RETURN(const auto names, ir::get_attr<Strings>(bind.instruction.attrs, "names"));
  SR_ASSIGN_OR_RETURN(const auto specs, output_components(bind));
  if (names.size() != specs.size()) {
    return base::invalid_argument("{} names for {} outputs", names.size(), specs.size());
  }
  return make_kernel([=](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(auto done, restore(c, place, [&]() -> Result<std::vector<SavedTensor>> {
                          std::vector<SavedTensor> out;
                          for (size_t i = 0; i < names.size(); ++i) {
                            SavedTensor& one = out.emplace_back();
                            one.name = names[i];
                            one.shape = Shape::unknown_rank();
                            one.value = Tensor::empty(specs[i].dtype, Shape{0});
                          }
                          return out;
                        }));
    if (!done.has_value()) return wait_for_restoring(c);
    for (size_t i = 0; i < specs.size(); ++i) {
      Tensor& value = (*done)[i];
      if (!specs[i].shape.accepts(value.shape())) {
        return base::invalid_argument("'{}' is {} in the checkpoint; {} was declared", names[i],
                                      value.to_string(), ir::to_string(specs[i]));
      }
      c.set_output(static_cast<int>(i), std::move(value));
    }
    return {};
  });
}

}  // namespace

void register_checkpoint_kernels(KernelTable* table) {
  table->add("SaveVariables", with_arity(2, -1, 1, with_outputs({DType::kString}, save_variables)));
  table->add("SaveTensors", with_arity(1, -1, 1, with_outputs({DType::kString}, save_tensors)));
  table->add("CommitCheckpoint",
             with_arity(2, -1, 1, with_outputs({DType::kString}, commit_checkpoint)));
  table->add("RestoreVariables",
             with_arity(1, -1, 1, with_outputs({DType::kBool}, restore_variables)));
  table->add("RestoreTensors", with_arity(1, 1, -1, restore_tensors));
}

}  // namespace sidereal::exec
