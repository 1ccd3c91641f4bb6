#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sidereal/exec/array_util.h"
#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/resource_util.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/kernels/rows.h"
#include "sidereal/resources/accumulator.h"
#include "sidereal/resources/queue.h"
#include "sidereal/resources/step_barrier.h"
#include "sidereal/resources/table.h"

/// Kernels of what steps share by name. One that must wait keeps its ticket in the step and is run
/// again: see KernelContext::wait_for().
namespace sidereal::exec {
Result<resources::Manager*> manager_of(const BindContext& bind) {
  if (bind.environment.resources != nullptr) return bind.environment.resources;
  return base::failed_precondition(
      "variables of sessions, queues, accumulators and mutable tables live where functions and "
      "sessions run in this release, not in the lanes of a cluster's training");
}

Result<std::string> key_of(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(const std::string name, ir::get_attr<std::string>(attrs, "shared_name"));
  if (name.empty()) return base::invalid_argument("the shared name is empty");
  return resources::key_of(ir::attr_or<std::string>(attrs, "container", ""), name);
}

std::shared_ptr<resources::Owner> owner_of_new(std::string_view name,
                                               const resources::Manager& manager,
                                               VariableLanes* lanes, int lane) {
  if (lanes == nullptr) return nullptr;
  if (lanes->are_planned()) return std::make_shared<resources::Owner>(lanes, lane);
  for (size_t end = name.rfind('/'); end != std::string_view::npos; end = name.rfind('/')) {
    name = name.substr(0, end);
    const auto weights = manager.find<resources::Variable>(name);
    if (weights.ok()) return (*weights)->owner();
  }
  return std::make_shared<resources::Owner>(lanes, lanes->next());
}

namespace {

using base::invalid_argument;
using resources::Accumulator;
using resources::Manager;
using resources::Queue;
using resources::StepBarrier;
using resources::Table;
using resources::Ticket;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

Result<int64_t> integer(const KernelContext& c, int i) {
  SR_ASSIGN_OR_RETURN(const Ints values, ints_of(c.input(i)));
  if (values.size() == 1) return values[0];
  return invalid_argument("input {} is {}; it must be one integer", i, c.input(i).to_string());
}

resources::Tuple inputs_from(const KernelContext& c, int first) {
  resources::Tuple out;
  for (int i = first; i < c.num_inputs(); ++i) out.push_back(c.input(i));
  return out;
}

/// Gives out what has as many components as were declared.
Status give_components(KernelContext& c, resources::Tuple* result) {
  if (result->size() != static_cast<size_t>(c.num_outputs())) {
    return invalid_argument("it has {} components; {} were declared", result->size(),
                            c.num_outputs());
  }
  for (size_t i = 0; i < result->size(); ++i) {
    const auto output = static_cast<int>(i);
    Tensor& one = (*result)[i];
    if (one.dtype() != c.output_dtype(output)) {
      return invalid_argument("component {} is {}; {} was declared", i, one.to_string(),
                              tensor::name_of(c.output_dtype(output)));
    }
    c.set_output(output, std::move(one));
  }
  return {};
}

/// Goes on with a request: makes it in the first run, and gives its results out, if any, when it is
/// done. `make` gives a ticket.
template <class Make, class Describe>
Status run_request(KernelContext& c, Manager* manager, Make make, Describe describe) {
  std::shared_ptr<void>& state = c.waiting_state();
  if (state == nullptr) {
    SR_ASSIGN_OR_RETURN(std::unique_ptr<Ticket> made, make());
    state = std::shared_ptr<Ticket>(std::move(made));
    manager->changed();
  }
  const std::shared_ptr<Ticket> ticket = std::static_pointer_cast<Ticket>(state);
  if (!ticket->poll()) return c.wait_for("{}", describe());
  state.reset();
  SR_RETURN_IF_ERROR(ticket->status());
  resources::Tuple& result = ticket->result();
  if (result.empty()) {
    c.set_output(0, Tensor::scalar(true));
    return {};
  }
  return give_components(c, &result);
}

// --- Queues.

Result<resources::QueueOrder> order_of(const BindContext& bind) {
  const auto text = ir::attr_or<std::string>(bind.instruction.attrs, "order", "fifo");
  if (text == "fifo") return resources::QueueOrder::kFifo;
  if (text == "shuffled") return resources::QueueOrder::kShuffled;
  if (text == "priority") return resources::QueueOrder::kPriority;
  return invalid_argument("'{}' is no order of a queue: fifo, shuffled or priority", text);
}

/// A kernel that finds or makes the T of `def`, and gives its handle.
template <class T, class Def>
Result<std::unique_ptr<Kernel>> maker(Manager* manager, Def def) {
  // Made once here, so that a wrong definition is found when the program is bound.
  SR_RETURN_IF_ERROR(T::make(def).status());
  return make_kernel([manager, def = std::move(def)](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<T> found,
                        manager->find_or_create<T>(def.name, [&def] { return *T::make(def); }));
    found->note_use();
    c.set_output(0, Tensor::strings(Shape(), std::vector<std::string>{def.name}));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> queue(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  resources::QueueDef def;
  SR_ASSIGN_OR_RETURN(def.name, key_of(bind));
  SR_ASSIGN_OR_RETURN(def.order, order_of(bind));
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(bind.instruction.attrs));
  for (const ir::TensorSpec& spec : specs) {
    def.dtypes.push_back(spec.dtype);
    if (ir::find_attr<std::vector<int64_t>>(attrs, "shapes") != nullptr) {
      def.shapes.push_back(spec.shape);
    }
  }
  def.capacity = ir::attr_or<int64_t>(attrs, "capacity", -1);
  def.min_after_dequeue = ir::attr_or<int64_t>(attrs, "min_after_dequeue", 0);
  def.seed = static_cast<uint64_t>(ir::attr_or<int64_t>(attrs, "seed", 0));
  def.pad = ir::attr_or(attrs, "pad", false);
  return maker<Queue>(manager, std::move(def));
}

Result<std::unique_ptr<Kernel>> enqueue(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  const bool many = ir::attr_or(bind.instruction.attrs, "many", false);
  return make_kernel([manager, many](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<Queue> queue, find_resource<Queue>(c, 0, *manager));
    return run_request(
        c, manager, [&] { return queue->enqueue(inputs_from(c, 1), many); },
        [&] { return "room in " + queue->describe(); });
  });
}

Result<std::unique_ptr<Kernel>> dequeue(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  SR_RETURN_IF_ERROR(output_components(bind).status());
  const bool many = ir::attr_or(bind.instruction.attrs, "many", false);
  const bool up_to = ir::attr_or(bind.instruction.attrs, "up_to", false);
  SR_RETURN_IF_ERROR(check_arity(bind, many ? 2 : 1, many ? 2 : 1, -1));
  return make_kernel([=](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<Queue> queue, find_resource<Queue>(c, 0, *manager));
    int64_t count = 1;
    if (many) {
      SR_ASSIGN_OR_RETURN(count, integer(c, 1));
    }
    return run_request(
        c, manager, [&] { return queue->dequeue(count, many, up_to); },
        [&] { return fmt::format("{} elements of {}", count, queue->describe()); });
  });
}

/// A kernel whose only output is the scalar `f(resource, context)` gives, a Result.
template <class T, class F>
KernelFactory asks(int inputs, F f) {
  using Value = typename std::decay_t<decltype(f(std::declval<T&>(),
                                                 std::declval<KernelContext&>()))>::value_type;
  const auto factory = [f](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
    return make_kernel([manager, f](KernelContext& c) -> Status {
      SR_ASSIGN_OR_RETURN(const std::shared_ptr<T> found, find_resource<T>(c, 0, *manager));
      SR_ASSIGN_OR_RETURN(const Value value, f(*found, c));
      manager->changed();
      c.set_output(0, Tensor::scalar(value));
      return {};
    });
  };
  return with_arity(inputs, inputs, 1, with_outputs({tensor::kDTypeOf<Value>}, factory));
}

/// asks() for what is done: true once it is.
template <class T, class F>
KernelFactory does(int inputs, F f) {
  return asks<T>(inputs, [f](T& resource, KernelContext& c) -> Result<bool> {
    SR_RETURN_IF_ERROR(f(resource, c));
    return true;
  });
}

Result<std::unique_ptr<Kernel>> close_queue(const BindContext& bind) {
  const bool cancel = ir::attr_or(bind.instruction.attrs, "cancel_pending", false);
  return does<Queue>(1, [cancel](Queue& queue, KernelContext&) -> Status {
    queue.close(cancel);
    return {};
  })(bind);
}

// --- Accumulators.

Result<std::unique_ptr<Kernel>> accumulator(const BindContext& bind) {
  const ir::AttrMap& attrs = bind.instruction.attrs;
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  resources::AccumulatorDef def;
  SR_ASSIGN_OR_RETURN(def.name, key_of(bind));
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(bind.instruction.attrs));
  if (specs.size() != 1) return invalid_argument("an accumulator has one component");
  def.dtype = specs[0].dtype;
  def.shape = specs[0].shape;
  const auto reduction = ir::attr_or<std::string>(attrs, "reduction", "mean");
  if (reduction == "sum") {
    def.reduction = resources::Reduction::kSum;
  } else if (reduction == "mean_of_all") {
    def.reduction = resources::Reduction::kMeanOfAll;
  } else if (reduction != "mean") {
    return invalid_argument("'{}' is no reduction of an accumulator: mean, mean_of_all or sum",
                            reduction);
  }
  def.sparse = ir::attr_or(attrs, "sparse", false);
  return maker<Accumulator>(manager, std::move(def));
}

Status apply_gradient(Accumulator& accumulator, KernelContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t step, integer(c, 1));
  if (c.num_inputs() == 3) return accumulator.apply(c.input(2), step, c.closure());
  return accumulator.apply_rows(c.input(2), c.input(3), step, c.closure());
}

Result<std::unique_ptr<Kernel>> bind_apply(const BindContext& bind) {
  return does<Accumulator>(static_cast<int>(bind.instruction.inputs.size()), apply_gradient)(bind);
}

Result<std::unique_ptr<Kernel>> take_gradient(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  SR_RETURN_IF_ERROR(output_components(bind).status());
  const bool waits = ir::attr_or(bind.instruction.attrs, "waits", true);
  return make_kernel([manager, waits](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<Accumulator> found,
                        find_resource<Accumulator>(c, 0, *manager));
    SR_ASSIGN_OR_RETURN(const int64_t count, integer(c, 1));
    if (!waits) {
      SR_ASSIGN_OR_RETURN(resources::Tuple there, found->take_now());
      manager->changed();
      return give_components(c, &there);
    }
    return run_request(
        c, manager, [&] { return found->take(count); },
        [&] { return fmt::format("{} gradients in {}", count, found->describe()); });
  });
}

Result<std::unique_ptr<Kernel>> await_step(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<Accumulator> found,
                        find_resource<Accumulator>(c, 0, *manager));
    SR_ASSIGN_OR_RETURN(const int64_t step, integer(c, 1));
    return run_request(
        c, manager, [&] { return found->await_step(step); },
        [&] { return fmt::format("the step after {} of {}", step, found->describe()); });
  });
}

void register_accumulator_kernels(KernelTable* table) {
  table->add("Accumulator", with_arity(0, 0, 1, with_outputs({DType::kString}, accumulator)));
  table->add("AccumulatorApply", with_arity(3, 4, 1, bind_apply));
  table->add("AccumulatorTake", with_arity(2, 2, -1, take_gradient));
  table->add("AccumulatorAwaitStep",
             with_arity(2, 2, 1, with_outputs({DType::kInt64}, await_step)));
  table->add("AccumulatorSize",
             asks<Accumulator>(1, [](Accumulator& a, KernelContext&) -> Result<int32_t> {
               return static_cast<int32_t>(a.num_accumulated());
             }));
  table->add("AccumulatorSetGlobalStep",
             does<Accumulator>(2, [](Accumulator& a, KernelContext& c) -> Status {
               SR_ASSIGN_OR_RETURN(const int64_t step, integer(c, 1));
               a.set_global_step(step);
               return {};
             }));
  table->add("AccumulatorRestart",
             does<Accumulator>(3, [](Accumulator& a, KernelContext& c) -> Status {
               SR_ASSIGN_OR_RETURN(const int64_t step, integer(c, 1));
               SR_ASSIGN_OR_RETURN(const int64_t contributors, integer(c, 2));
               return a.restart(step, contributors);
             }));
  table->add("AccumulatorLeave",
             does<Accumulator>(2, [](Accumulator& a, KernelContext& c) -> Status {
               SR_ASSIGN_OR_RETURN(const int64_t count, integer(c, 1));
               return a.leave(count);
             }));
}

// --- Barriers.

Result<std::unique_ptr<Kernel>> step_barrier(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  SR_ASSIGN_OR_RETURN(const std::string name, key_of(bind));
  return make_kernel([manager, name](KernelContext& c) -> Status {
    SR_RETURN_IF_ERROR(
        manager->find_or_create<StepBarrier>(name, [&name] { return StepBarrier::make(name); })
            .status());
    c.set_output(0, Tensor::strings(Shape(), std::vector<std::string>{name}));
    return {};
  });
}

Status restart_barrier(StepBarrier& barrier, KernelContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t first, integer(c, 1));
  SR_ASSIGN_OR_RETURN(const int64_t bound, integer(c, 2));
  const auto names = c.in<std::string_view>(3);
  return barrier.restart(first, bound, {names.begin(), names.end()});
}

Result<std::unique_ptr<Kernel>> await_barrier(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<StepBarrier> found,
                        find_resource<StepBarrier>(c, 0, *manager));
    SR_ASSIGN_OR_RETURN(const int64_t replica, integer(c, 1));
    return run_request(
        c, manager, [&] { return found->await(replica); },
        [&] { return found->describe(replica); });
  });
}

Result<std::unique_ptr<Kernel>> join_barrier(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<StepBarrier> found,
                        find_resource<StepBarrier>(c, 0, *manager));
    SR_RETURN_IF_ERROR(check_dtype(c, 1, DType::kString));
    if (c.input(1).num_elements() != 1) return invalid_argument("a replica has one name");
    SR_ASSIGN_OR_RETURN(const int64_t bound, integer(c, 2));
    SR_ASSIGN_OR_RETURN(const int64_t replica,
                        found->join(std::string(c.in<std::string_view>(1)[0]), bound));
    c.set_output(0, Tensor::scalar(replica));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> expel_from_barrier(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<StepBarrier> found,
                        find_resource<StepBarrier>(c, 0, *manager));
    SR_ASSIGN_OR_RETURN(const int64_t replica, integer(c, 1));
    SR_ASSIGN_OR_RETURN(const std::vector<std::string> names, found->expel(replica));
    c.set_output(0, Tensor::strings(Shape({static_cast<int64_t>(names.size())}), names));
    return {};
  });
}

void register_barrier_kernels(KernelTable* table) {
  table->add("StepBarrier", with_arity(0, 0, 1, with_outputs({DType::kString}, step_barrier)));
  table->add("StepBarrierRestart", does<StepBarrier>(4, restart_barrier));
  table->add("StepBarrierAwait", with_arity(2, 2, 1, with_outputs({DType::kInt64}, await_barrier)));
  table->add("StepBarrierAdvance",
             does<StepBarrier>(2, [](StepBarrier& barrier, KernelContext& c) -> Status {
               SR_ASSIGN_OR_RETURN(const int64_t replica, integer(c, 1));
               return barrier.advance(replica);
             }));
  table->add("StepBarrierLeave",
             does<StepBarrier>(3, [](StepBarrier& barrier, KernelContext& c) -> Status {
               SR_ASSIGN_OR_RETURN(const int64_t replica, integer(c, 1));
               SR_ASSIGN_OR_RETURN(const int64_t steps, integer(c, 2));
               return barrier.leave(replica, steps);
             }));
  table->add("StepBarrierJoin", with_arity(3, 3, 1, with_outputs({DType::kInt64}, join_barrier)));
  table->add("StepBarrierExpel",
             with_arity(2, 2, 1, with_outputs({DType::kString}, expel_from_barrier)));
}

// --- Tables.

Result<std::unique_ptr<Kernel>> mutable_table(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  resources::TableDef def;
  SR_ASSIGN_OR_RETURN(def.name, key_of(bind));
  SR_ASSIGN_OR_RETURN(const auto specs, ir::component_specs(bind.instruction.attrs));
  if (specs.size() != 2) return invalid_argument("a table has keys and values");
  def.key = specs[0].dtype;
  def.value = specs[1].dtype;
  def.row = specs[1].shape.has_rank() ? specs[1].shape : Shape();
  return maker<Table>(manager, std::move(def));
}

Result<std::unique_ptr<Kernel>> find_in_table(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, find_resource<Table>(c, 0, *manager));
    SR_ASSIGN_OR_RETURN(Tensor values, table->find(c.input(1), c.input(2)));
    c.set_output(0, std::move(values));
    return {};
  });
}

Result<std::unique_ptr<Kernel>> export_table(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  SR_RETURN_IF_ERROR(output_components(bind).status());
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table, find_resource<Table>(c, 0, *manager));
    auto [keys, values] = table->contents();
    if (keys.dtype() != c.output_dtype(0) || values.dtype() != c.output_dtype(1)) {
      return invalid_argument("the table holds {} by {}", values.to_string(), keys.to_string());
    }
    c.set_output(0, std::move(keys));
    c.set_output(1, std::move(values));
    return {};
  });
}

/// Which row of a constant table holds a key. The index of a table is kept while it comes in again
/// and again, as constants and captured tensors do.
class LookupKernel final : public Kernel {
 public:
  Status run(KernelContext& c) override {
    const Tensor keys = c.input(2);
    SR_RETURN_IF_ERROR(check_rank(c, 0, 1));
    SR_RETURN_IF_ERROR(check_rank(c, 1, 1));
    SR_RETURN_IF_ERROR(check_dtype(c, 2, c.input(0).dtype()));
    SR_RETURN_IF_ERROR(check_dtype(c, 3, c.input(1).dtype()));
    if (c.input(0).num_elements() != c.input(1).num_elements() || c.input(3).num_elements() != 1) {
      return invalid_argument("{} keys, {} values and {} defaults", c.input(0).num_elements(),
                              c.input(1).num_elements(), c.input(3).num_elements());
    }
    SR_RETURN_IF_ERROR(index(c.input(0)));
    const size_t bytes = tensor::size_of(c.input(1).dtype());
    std::byte* out = c.output(0, keys.shape()).raw();
    return for_each_key(keys, [&](int64_t i, std::string_view key) -> Status {
      const auto it = rows_.find(key);
      const std::byte* from = it == rows_.end()
                                  ? c.input(3).raw()
                                  : c.input(1).raw() + static_cast<size_t>(it->second) * bytes;
      std::memcpy(out + static_cast<size_t>(i) * bytes, from, bytes);
      return {};
    });
  }

 private:
  template <class F>
  static Status for_each_key(const Tensor& keys, F f) {
    const size_t bytes = tensor::size_of(keys.dtype());
    const bool text = keys.dtype() == DType::kString;
    for (int64_t i = 0; i < keys.num_elements(); ++i) {
      const char* at = reinterpret_cast<const char*>(keys.raw()) + static_cast<size_t>(i) * bytes;
      SR_RETURN_IF_ERROR(
          f(i, text ? keys.data<const std::string_view>()[i] : std::string_view(at, bytes)));
    }
    return {};
  }

  Status index(const Tensor& table) {
    const bool same = indexed_.defined() && indexed_.raw() == table.raw() &&
                      indexed_.dtype() == table.dtype() && indexed_.shape() == table.shape();
    if (same) return {};
    rows_.clear();
    indexed_ = Tensor();
    SR_RETURN_IF_ERROR(for_each_key(table, [&](int64_t i, std::string_view key) -> Status {
      if (rows_.emplace(key, i).second) return {};
      return invalid_argument("key {} of the table stands there twice", i);
    }));
    indexed_ = table;  // Held, so that its memory is no other table's.
    return {};
  }

  Tensor indexed_;
  absl::flat_hash_map<std::string_view, int64_t> rows_;
};

Result<std::unique_ptr<Kernel>> lookup(const BindContext&) {
  return std::unique_ptr<Kernel>(std::make_unique<LookupKernel>());
}

Result<std::unique_ptr<Kernel>> destroy(const BindContext& bind) {
  SR_ASSIGN_OR_RETURN(Manager* const manager, manager_of(bind));
  return make_kernel([manager](KernelContext& c) -> Status {
    SR_ASSIGN_OR_RETURN(const std::string_view key, handle_of(c, 0));
    c.set_output(0, Tensor::scalar(manager->erase(key)));
    return {};
  });
}

void register_queue_kernels(KernelTable* table) {
  const auto handle = [](KernelFactory factory) {
    return with_arity(0, 0, 1, with_outputs({DType::kString}, std::move(factory)));
  };
  table->add("Queue", handle(queue));
  table->add("MutableTable", handle(mutable_table));
  table->add("QueueEnqueue", with_arity(2, -1, 1, with_outputs({DType::kBool}, enqueue)));
  table->add("QueueDequeue", with_arity(1, 2, -1, dequeue));
  table->add("QueueClose", close_queue);
  table->add("QueueSize", asks<Queue>(1, [](Queue& queue, KernelContext&) -> Result<int32_t> {
               return static_cast<int32_t>(queue.size());
             }));
  table->add("QueueIsClosed", asks<Queue>(1, [](Queue& queue, KernelContext&) -> Result<bool> {
               return queue.closed();
             }));
}

}  // namespace

void register_resource_kernels(KernelTable* table) {
  table->add("DestroyResource", with_arity(1, 1, 1, with_outputs({DType::kBool}, destroy)));
  register_queue_kernels(table);
  register_accumulator_kernels(table);
  register_barrier_kernels(table);
  table->add("TableInsert", does<Table>(3, [](Table& t, KernelContext& c) {
               return t.insert(c.input(1), c.input(2));
             }));
  table->add("TableRemove",
             does<Table>(2, [](Table& t, KernelContext& c) { return t.remove(c.input(1)); }));
  table->add("TableSize",
             asks<Table>(1, [](Table& t, KernelContext&) -> Result<int64_t> { return t.size(); }));
  table->add("TableFind", with_arity(3, 3, 1, output_like(0, 2, find_in_table)));
  table->add("TableExport", with_arity(1, 1, 2, export_table));
  table->add("StaticTableFind", with_arity(4, 4, 1, output_like(0, 1, lookup)));
}

}  // namespace sidereal::exec
