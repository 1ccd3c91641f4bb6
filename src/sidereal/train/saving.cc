#include "sidereal/train/saving.h"

#include <map>

#include "sidereal/ops/ops.h"
#include "sidereal/train/distribute.h"

namespace sidereal::train {

using ir::DType;
using ir::NodeId;
using ir::Output;
using Strings = std::vector<std::string>;

const std::vector<StateTensor>& state_tensors() {
  static const std::vector<StateTensor> all = {
      {"step", DType::kInt64},         {"rows", DType::kInt64},  {"loop_steps", DType::kInt64},
      {"worker_steps", DType::kInt64}, {"epoch", DType::kInt64}, {"begun_passes", DType::kInt64},
      {"curve", DType::kFloat64},      {"data", DType::kString}};
  return all;
}

SavingNodes add_saving(ir::Builder* b, std::vector<SavedVariable> variables) {
  const auto scope = b->scope("checkpoint");
  SavingNodes out;
  const auto name_of = [b](Output value) { return b->graph().output_name(value); };
  const auto any = [&](const std::string& name, DType dtype, const ir::Shape& shape) {
    return b->add("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}}, name);
  };
  const Output prefix = any("prefix", DType::kString, {});
  const Output base = any("base", DType::kString, {});
  const Output since = any("since", DType::kString, {});
  if (!b->status().ok()) return out;
  const auto place = [b](Output value, const std::string& device) {
    if (value.valid()) b->graph().mutable_node(value.node).device = device;
    return value;
  };
  std::map<std::string, std::vector<const SavedVariable*>> by_device;
  for (const SavedVariable& one : variables) {
    by_device[b->graph().node(one.handle.node).device].push_back(&one);
  }
  const auto shards = static_cast<int64_t>(by_device.size()) + 1;
  std::vector<Output> parts = {prefix, base};
  std::vector<NodeId> restored;
  int64_t shard = 0;
  for (const auto& [device, here] : by_device) {
    Strings names;
    Strings slices;
    std::vector<Output> to_save = {prefix, since};
    std::vector<Output> to_restore = {prefix};
    for (const SavedVariable* const one : here) {
      // Parts of one tensor on one task have one name each in the node, and one in the file.
      names.push_back(one->name);
      slices.push_back(one->slice);
      to_save.push_back(one->handle);
      to_restore.push_back(one->handle);
    }
    const ir::AttrMap what = {{"names", names}, {"slices", slices}};
    ir::AttrMap how = what;
    how["shard"] = shard++;
    how["shards"] = shards;
    parts.push_back(place(b->add("SaveVariables", to_save, how, "save"), device));
    const Output back = place(b->add("RestoreVariables", to_restore, what, "restore"), device);
    if (!b->status().ok()) return out;
    restored.push_back(back.node);
  }
  Strings names;
  std::vector<Output> values = {prefix};
  for (const StateTensor& one : state_tensors()) {
    const Output value = any(one.name, one.dtype, ir::Shape::unknown_rank());
    if (!value.valid()) return out;
    values.push_back(value);
    names.push_back(kStatePrefix + std::string(one.name));
    out.state.emplace_back(names.back(), name_of(value));
  }
  parts.push_back(place(b->add("SaveTensors", values,
                               {{"names", names}, {"shard", shard}, {"shards", shards}}, "state"),
                        ps_device(0)));
  const Output commit = place(b->add("CommitCheckpoint", parts, {}, "commit"), ps_device(0));
  const NodeId restore = ops::no_op(*b, restored, "restored");
  if (!b->status().ok()) return out;
  out.prefix = name_of(prefix);
  out.base = name_of(base);
  out.since = name_of(since);
  out.commit = name_of(commit);
  out.restore = b->graph().node(restore).name;
  out.variables = std::move(variables);
  out.shards = shards;
  return out;
}

}  // namespace sidereal::train
