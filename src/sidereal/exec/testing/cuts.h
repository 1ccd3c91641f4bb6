#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/exec/local_rendezvous.h"
#include "sidereal/exec/testing/random_control.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/resources/manager.h"

/// What tests of graphs that were cut share: the whole graph in one program, its parts that meet at
/// Send and Recv, and a driver with the devices it calls. All take turns in one thread.
namespace sidereal::exec {

/// The names of four devices: two of ps, two of workers.
const std::vector<std::string>& four_devices();

/// The feeds, then the fetches, of a step.
class Steps {
 public:
  virtual ~Steps();
  /// Runs one step, and copies what it fetches.
  virtual Result<std::vector<tensor::Tensor>> run(const reference::Values& feeds, uint64_t id) = 0;
};

/// The whole graph in one program, without passes, and what its steps share.
class WholeGraph final : public Steps {
 public:
  Status make(const ControlModel& model);
  Result<std::vector<tensor::Tensor>> run(const reference::Values& feeds, uint64_t id) override;

 private:
  resources::Manager manager_;
  BufferPool pool_{size_t{1} << 30};
  std::unique_ptr<BoundProgram> bound_;
  std::unique_ptr<Step> step_;
};

/// The parts of a graph that was cut by devices; each device has what its steps share. Tensors are
/// late now and then, and a test fails when the memory of one changes on its way.
/// Thread: core-local.
class DeviceParts final : public Steps {
 public:
  explicit DeviceParts(Dice* dice);
  ~DeviceParts() override;
  Status make(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
              const partition::ByDeviceOptions& options = {});
  /// Parts go on in an order that the dice choose.
  Result<std::vector<tensor::Tensor>> run(const reference::Values& feeds, uint64_t id) override;

 private:
  class SlowRendezvous;
  Status stuck(const std::vector<bool>& done) const;

  std::unique_ptr<SlowRendezvous> rendezvous_;
  Dice& dice_;
  size_t num_fetches_ = 0;
  std::vector<partition::DevicePartition> parts_;
  std::deque<std::vector<ports::TensorSource>> peers_;  ///< By part.
  std::vector<std::unique_ptr<resources::Manager>> managers_;
  std::vector<std::unique_ptr<BufferPool>> pools_;
  std::vector<std::unique_ptr<BoundProgram>> bound_;
  std::vector<std::unique_ptr<Step>> steps_;
};

/// A graph that was cut into a driver and calls; each device has what its steps share. Calls begin
/// on a device in the order of their starts, and go on and are answered in an order that the dice
/// choose; asynchronous ones may be reported done at once, and what may be prefetched may be asked
/// for at the end of the step before. A test fails when what is sent changes before. Thread:
/// core-local.
class DrivenCalls final : public Steps, private ports::Exchange {
 public:
  DrivenCalls(Dice* dice, partition::PullPushOptions::Mode mode);
  ~DrivenCalls() override;
  /// Its devices are those of `other`. Before make().
  void share(const DrivenCalls& other) { managers_ = other.managers_; }
  Status make(const ir::Graph& graph, const std::string& driver,
              const std::vector<ir::Output>& fetches, const std::vector<ir::NodeId>& targets = {});
  /// What the steps of a device share.
  resources::Manager& manager(const std::string& device) {
    std::unique_ptr<resources::Manager>& made = (*managers_)[device];
    if (made == nullptr) made = std::make_unique<resources::Manager>();
    return *made;
  }
  Result<std::vector<tensor::Tensor>> run(const reference::Values& feeds, uint64_t id) override;
  /// Begins what was started and has not begun, and uses nothing that was prefetched: another step
  /// of the same driver begins.
  Status make_way();

  [[nodiscard]] const partition::PartitionedGraph& parts() const { return parts_; }
  int64_t calls = 0;       ///< Of all steps.
  int64_t prefetched = 0;  ///< Those that came before their steps.

 private:
  struct Call;
  class Ahead;

  Status start(int call, uint64_t step, std::span<const tensor::Tensor> feeds,
               ports::CallCompletion* completion) override;
  void yield() override {}
  /// Goes on with some call; false when none can.
  Result<bool> advance_any();
  Status answer(Call* call);
  bool may_begin(const Call& call) const;
  std::unique_ptr<Call> make_call(int number, uint64_t step, ports::CallCompletion* completion);
  void send_ahead(uint64_t step);

  Dice& dice_;
  partition::PullPushOptions::Mode mode_;
  partition::PartitionedGraph parts_;
  program::CompiledStep compiled_;
  using Managers = std::map<std::string, std::unique_ptr<resources::Manager>>;  // By device.
  std::shared_ptr<Managers> managers_ = std::make_shared<Managers>();
  BufferPool pool_{size_t{1} << 30};
  std::vector<std::unique_ptr<BoundProgram>> remotes_;
  std::unique_ptr<BoundProgram> bound_;
  std::unique_ptr<Step> step_;
  std::map<int, std::unique_ptr<Ahead>> ahead_;  // By number; before what refers to it.
  std::vector<std::unique_ptr<Call>> started_;
};

/// Some nodes wait for earlier ones, in bodies too.
void add_orders(ir::Graph* graph, Dice* dice);
/// A loop over as many rows as are fed ("rows"), of which two deep loops may be one.
ControlModel rows_model(Dice* dice);
/// Two variables, and a loop whose body reads one and adds to the other, in some order.
/// Fetches: what the loop returns, and the other variable behind it.
ControlModel variables_model(Dice* dice);
/// Steps that read and change variables and pass values through queues, in loops and branches too,
/// in an order that edges say. Fetches what was read, and all variables at the end. The variables
/// must have been made by a step with "first" true. Without `orders_bodies`, what bodies do to one
/// variable has the order of the program only.
ControlModel session_model(Dice* dice, bool orders_bodies);

}  // namespace sidereal::exec
