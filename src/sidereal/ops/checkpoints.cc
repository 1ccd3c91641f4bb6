#include <set>
#include <string_view>
#include <utility>

#include "sidereal/ir/component_specs.h"
#include "sidereal/ops/args.h"
#include "sidereal/ops/internal.h"

/// Ops that write what a cluster has learned to files, and read it. Each task writes what is on it;
/// then one of them puts the index in place, from when on the checkpoint is there.
namespace sidereal::ops::internal {
namespace {

using Strings = std::vector<std::string>;

Status require_text(const InferContext& c, int input) {
  SR_RETURN_IF_ERROR(require_dtype(c, input, DType::kString));
  return require_rank(c, input, 0);
}

/// kInvalidArgument unless the attribute "names" has one for each of `count`, and no two are the
/// same slice of the same tensor.
Status check_names(const InferContext& c, size_t count) {
  SR_ASSIGN_OR_RETURN(const auto names, ir::get_attr<Strings>(c.attrs, "names"));
  const auto slices = ir::attr_or(c.attrs, "slices", Strings(count));
  if (names.size() != count) {
    return base::invalid_argument("{} names for {} values", names.size(), count);
  }
  if (slices.size() != count) {
    return base::invalid_argument("{} slices for {} variables", slices.size(), count);
  }
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (size_t i = 0; i < count; ++i) {
    if (names[i].empty()) return base::invalid_argument("a name is empty");
    if (seen.emplace(names[i], slices[i]).second) continue;
    return base::invalid_argument("two are named '{}' and are the same part of it", names[i]);
  }
  return {};
}

/// That this is part `shard` of `shards`.
Status check_shard(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t shard, ir::get_attr<int64_t>(c.attrs, "shard"));
  SR_ASSIGN_OR_RETURN(const int64_t shards, ir::get_attr<int64_t>(c.attrs, "shards"));
  constexpr int64_t kShardsMax = 100'000;
  if (shard >= 0 && shard < shards && shards <= kShardsMax) return {};
  return base::invalid_argument("shard {} of {}: they are 0 to {} of at most {}", shard, shards,
                                shards - 1, kShardsMax);
}

/// (prefix, base, variables...).
Status infer_save_variables(const InferContext& c) {
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    SR_RETURN_IF_ERROR(require_text(c, i));
  }
  SR_RETURN_IF_ERROR(check_names(c, c.inputs.size() - 2));
  SR_RETURN_IF_ERROR(check_shard(c));
  return put(c, DType::kString, Shape());
}

/// (prefix, values...).
Status infer_save_tensors(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_text(c, 0));
  SR_RETURN_IF_ERROR(check_names(c, c.inputs.size() - 1));
  SR_RETURN_IF_ERROR(check_shard(c));
  return put(c, DType::kString, Shape());
}

/// (prefix, base, parts...).
Status infer_commit(const InferContext& c) {
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    SR_RETURN_IF_ERROR(require_text(c, i));
  }
  return put(c, DType::kString, Shape());
}

/// (prefix, variables...).
Status infer_restore_variables(const InferContext& c) {
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    SR_RETURN_IF_ERROR(require_text(c, i));
  }
  SR_RETURN_IF_ERROR(check_names(c, c.inputs.size() - 1));
  return put(c, DType::kBool, Shape());
}

Status infer_restore_tensors(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_text(c, 0));
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(c.attrs));
  SR_RETURN_IF_ERROR(check_names(c, specs.size()));
  for (const ir::TensorSpec& spec : specs) SR_RETURN_IF_ERROR(put(c, spec.dtype, spec.shape));
  return {};
}

}  // namespace

void register_checkpoints(OpRegistry* registry) {
  const ir::AttrSpec names = {"names", "strings", true, "What each is called in the checkpoint."};
  const ir::AttrSpec slices = {
      "slices", "strings", false,
      "Of which tensor each is a part: its extents, and 'START,COUNT,STEP' of each dimension, as "
      "'8 4 0,4:-'; empty for a whole one; none if absent."};
  const ir::AttrSpec shard = {"shard", "int", true, "Number of the data file."};
  const ir::AttrSpec shards = {"shards", "int", true, "How many data files there are."};
  const ir::AttrSpec pace = {"bytes_per_second", "int", false,
                             "How much is written at most; 0, as fast as the disk is, if absent."};
  registry->add({.name = "SaveVariables",
                 .doc = "(prefix, base, variables...): writes what variables of a task are, all of "
                        "a lane at one instant, while steps go on changing them; of those that "
                        "were saved in the cut `base`, what has changed since. A part for "
                        "CommitCheckpoint.",
                 .min_inputs = 2,
                 .max_inputs = -1,
                 .attrs = {names,
                           slices,
                           shard,
                           shards,
                           pace,
                           {"tracks_changes", "bool", false,
                            "Whether it is kept note of what changes from now on, for increments; "
                            "if absent, where a base is named."}},
                 .infer = infer_save_variables,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
  registry->add({.name = "SaveTensors",
                 .doc = "(prefix, values...): writes values. A part for CommitCheckpoint.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {names, shard, shards},
                 .infer = infer_save_tensors,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
  registry->add({.name = "CommitCheckpoint",
                 .doc = "(prefix, base, parts...): puts the index of a checkpoint in place, whose "
                        "parts have been written: from then on it is there. `base` is the prefix "
                        "that its increments stand on. The cut, for later increments.",
                 .min_inputs = 2,
                 .max_inputs = -1,
                 .infer = infer_commit,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
  registry->add({.name = "RestoreVariables",
                 .doc = "(prefix, variables...): gives variables the values that they have in a "
                        "checkpoint, in whatever parts these lie there. NOT_FOUND and "
                        "INVALID_ARGUMENT before any is changed. True.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {names, slices},
                 .infer = infer_restore_variables,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
  registry->add({.name = "RestoreTensors",
                 .doc = "The values of these names in the checkpoint of that prefix.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {names,
                           {"dtypes", "strings", true, "Of each value."},
                           {"shapes", "ints", false,
                            "Of each value its rank (-1: unknown), then its extents (-1: "
                            "unknown)."}},
                 .infer = infer_restore_tensors,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true});
}

}  // namespace sidereal::ops::internal
