#include "sidereal/partition/internal/parcels.h"

#include <set>

#include "sidereal/ir/control_ops.h"
#include "sidereal/partition/internal/waiting.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::partition {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

/// What a value has at least; an extent that is not known is 1.
int64_t known_bytes(const ir::TensorSpec& spec) {
  auto bytes = static_cast<int64_t>(tensor::size_of(spec.dtype));
  if (!spec.shape.has_rank()) return bytes;
  for (const int64_t extent : spec.shape.dims()) {
    if (extent >= 0 && __builtin_mul_overflow(bytes, extent, &bytes)) return INT64_MAX;
  }
  return bytes;
}

/// Goes through what all devices do for a region. Thread: core-local.
class ParcelFinder {
 public:
  ParcelFinder(const Region& region, const ParcelOptions& options)
      : region_(region), options_(options) {}

  Parcels run() {
    for (const Node& node : region_.graph->nodes()) {
      if (node.op == ir::kArgOp) pass_results(node);
    }
    for (const NodeId id : region_.order) {
      const Node& node = region_.graph->node(id);
      for (const DeviceIndex device : region_.places[id.value]) {
        if (may_wait(node.op) || ir::runs_functions(node.op)) close_from(device);
        receive_for(node, device);
      }
      pass_results(node);
    }
    return std::move(out_);
  }

 private:
  /// What `node` reads and waits for on `device`.
  void receive_for(const Node& node, DeviceIndex device) {
    for (const Output& value : reads_on(region_, node, device)) {
      const auto found = out_.of_value.find({value, device});
      if (found != out_.of_value.end()) receive(found->second);
    }
    for (const Deed& done : region_.waits[node.id.value]) {
      const auto found = out_.of_order.find({done, device});
      if (found != out_.of_order.end()) receive(found->second);
    }
  }

  void receive(size_t parcel) {
    if (!received_.insert(parcel).second) return;
    const auto [from, to] = std::pair(out_.all[parcel].from, out_.all[parcel].to);
    const auto open = open_.find({from, to});
    if (open != open_.end() && open->second.parcel == parcel) open_.erase(open);
    close_from(to);
  }

  /// The device may wait now.
  void close_from(DeviceIndex device) {
    std::erase_if(open_, [&](const auto& open) { return open.first.first == device; });
  }

  void pass_results(const Node& node) {
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Output value{node.id, static_cast<int32_t>(o)};
      const auto sent = region_.sent.find(value);
      if (sent == region_.sent.end()) continue;
      for (const DeviceIndex to : sent->second) {
        const size_t parcel = parcel_for(region_.home_of(value), to, known_bytes(node.outputs[o]));
        out_.all[parcel].values.push_back(value);
        out_.of_value[{value, to}] = parcel;
      }
    }
    for (const DeviceIndex from : region_.places[node.id.value]) {
      const Deed done{node.id, from};
      const auto awaited = region_.awaited.find(done);
      if (awaited == region_.awaited.end()) continue;
      for (const DeviceIndex to : awaited->second) {
        const size_t parcel = parcel_for(from, to, 0);
        out_.all[parcel].orders.push_back(done);
        out_.of_order[{done, to}] = parcel;
      }
    }
  }

  /// Where something goes that has so many bytes at least.
  size_t parcel_for(DeviceIndex from, DeviceIndex to, int64_t bytes) {
    const auto made = [&] {
      out_.all.push_back({.from = from, .to = to, .values = {}, .orders = {}});
      return out_.all.size() - 1;
    };
    if (!options_.fuse || bytes > options_.bytes_max) return made();
    const auto [found, is_new] = open_.try_emplace({from, to});
    Open& open = found->second;
    if (is_new || bytes > options_.bytes_max - open.bytes ||
        out_.all[open.parcel].values.size() >= options_.values_max) {
      open = {.parcel = made(), .bytes = 0};
    }
    open.bytes += bytes;
    return open.parcel;
  }

  /// A parcel that is being filled.
  struct Open {
    size_t parcel = 0;
    int64_t bytes = 0;
  };

  const Region& region_;
  const ParcelOptions& options_;
  Parcels out_;
  std::map<std::pair<DeviceIndex, DeviceIndex>, Open> open_;  // By source and destination.
  std::set<size_t> received_;
};

}  // namespace

Parcels find_parcels(const Region& region, const ParcelOptions& options) {
  return ParcelFinder(region, options).run();
}

}  // namespace sidereal::partition
