#include "tests/sim/moves.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/sim/move_clients.h"
#include "tests/sim/move_cluster.h"
#include "tests/sim/mover.h"

namespace sidereal::sim {

using sys::kMicrosecond;
using sys::kMillisecond;
using sys::kSecond;
using sys::sim::Rng;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// Of runs, those in which faults of one kind are not there.
constexpr double kNone = 0.3;

/// How long all may take to come to rest.
constexpr int kRestSeconds = 120;

class MovesSimulation {
 public:
  MovesSimulation(const MovesScenario& scenario,
                  std::function<void(int64_t, std::string_view)> trace)
      : scenario_(scenario),
        world_(scenario.seed, {}),
        rng_(world_.random().fork()),
        context_{.world = &world_, .scenario = &scenario, .ledger = &ledger_} {
    if (trace) world_.set_trace(std::move(trace));
    cluster_ = std::make_unique<MoveCluster>(context_);
    for (int i = 0; i < scenario.variables; ++i) {
      training_.owners.push_back(i / 2 % scenario.ps);
    }
    make_variables();
    clients_ = std::make_unique<MoveClients>(context_, cluster_.get(), &training_);
    clients_->hold();
    start_mover();
  }
  // What happens yet finds all of it.
  ~MovesSimulation() {
    mover_.reset();
    cluster_.reset();
  }

  MovesReport run() {
    each(scenario_.ps_death_ns, [this] { static_cast<void>(cluster_->kill(any_ps())); });
    each(scenario_.mover_death_ns, [this] { kill_mover(); });
    each(scenario_.stall_ns, [this] { stall(); });
    world_.run_until(scenario_.calm_at_ns);
    const int64_t before = moves_ + (mover_ != nullptr ? mover_->moves() : 0);
    world_.run_until(scenario_.end_ns);
    // What servers have come back with that belongs nowhere is found by moves that fail.
    for (int i = 0; i < kRestSeconds && moves_ + mover_->moves() == before; ++i) {
      world_.run_until(world_.now() + kSecond);
    }
    report_.calm_moves = moves_ + mover_->moves() - before;
    clients_->quiet();
    mover_->quiet();
    for (int i = 0; i < kRestSeconds && !why_busy().empty(); ++i) {
      world_.run_until(world_.now() + kSecond);
    }
    if (const std::string why = why_busy(); !why.empty()) {
      ledger_.complain("{} s after the end {}", kRestSeconds, why);
    }
    // What was destroyed last is gone from standbys soon.
    world_.run_until(world_.now() + 2 * kSecond);
    check();
    return report();
  }

 private:
  /// Each is there, on the lane of its name, before anything is pushed.
  void make_variables() {
    training_.session = world_.random().next();
    for (int i = 0; i < scenario_.variables; ++i) {
      MovePs* const ps = cluster_->ps(training_.owners[static_cast<size_t>(i)]);
      static_cast<void>(ps->open(training_.session));
      const auto made = ps->run_now({.session = training_.session,
                                     .what = MoveWork::kBegin,
                                     .variable = i,
                                     .feeds = {Tensor::zeros(DType::kFloat32, {scenario_.rows})}});
      SR_CHECK(made.ok(), "a variable cannot be made: {}", base::message_of(made.status()));
    }
  }
  void start_mover() {
    mover_ = std::make_unique<Mover>(context_, cluster_.get(), &training_, clients_.get());
  }
  void kill_mover() {
    if (mover_ == nullptr) return;
    ++report_.mover_deaths;
    moves_ += mover_->moves();
    report_.given_up += mover_->given_up();
    mover_.reset();
    const int64_t back = world_.now() + rng_.around(200 * kMillisecond);
    world_.at(std::min(back, scenario_.calm_at_ns), [this] { start_mover(); });
  }
  int any_ps() { return static_cast<int>(rng_.below(static_cast<uint64_t>(scenario_.ps))); }
  void stall() {
    const MovePs* const ps = cluster_->ps(any_ps());
    if (ps == nullptr) return;
    const int64_t ns =
        std::min(rng_.around(200 * kMillisecond), scenario_.calm_at_ns - world_.now());
    const int only = static_cast<int>(rng_.below(2 * static_cast<uint64_t>(ps->lanes())));
    for (int i = 0; i < ps->lanes(); ++i) {
      if (only >= ps->lanes() || only == i) world_.stall(ps->node(i), ns);
    }
  }
  /// Calls `fault` again and again while there are to be faults.
  void each(int64_t mean_ns, std::function<void()> fault) {
    sim::each(&world_, &rng_, scenario_.calm_at_ns, mean_ns, std::move(fault));
  }

  /// "": all is at rest.
  [[nodiscard]] std::string why_busy() const {
    if (!clients_->has_all_answers()) return "a push is not answered";
    if (!mover_->is_idle()) return "a move goes on, or something is left behind";
    for (int i = 0; i < cluster_->size(); ++i) {
      if (cluster_->ps(i) == nullptr) return fmt::format("ps {} is not back", i);
      if (cluster_->standby(i) == nullptr || !cluster_->standby(i)->has_all_answered()) {
        return fmt::format("ps {} does not wait for its standby", i);
      }
    }
    return "";
  }

  void check() {
    if (report_.calm_moves == 0) ledger_.complain("no move came to its end any more");
    for (int i = 0; i < scenario_.variables; ++i) {
      const int owner = training_.owners[static_cast<size_t>(i)];
      for (int ps = 0; ps < cluster_->size(); ++ps) {
        if (cluster_->ps(ps) != nullptr) check(i, ps, ps == owner);
      }
    }
  }
  void check(int variable, int at, bool is_owner) {
    MovePs* const ps = cluster_->ps(at);
    const auto value =
        ps->run_now({.session = training_.session, .what = MoveWork::kRead, .variable = variable});
    const std::string name = moved_name(variable);
    const Result<Tensor> copy = cluster_->standby(at)->copy().replica().value(name);
    if (!is_owner) {
      if (value.ok()) ledger_.complain("ps {} has '{}', which is another's", at, name);
      if (copy.ok()) ledger_.complain("so has its standby '{}', of ps {}", name, at);
      return;
    }
    if (!value.ok()) {
      return ledger_.complain("ps {} has not '{}', which is its: {}", at, name,
                              base::message_of(value.status()));
    }
    clients_->check(variable, (*value)[0]);
    const bool is_same =
        copy.ok() && std::ranges::equal(copy->data<const float>(), (*value)[0].data<const float>());
    if (!is_same) ledger_.complain("the standby of ps {} has another '{}'", at, name);
  }

  MovesReport report() {
    MovesReport out = report_;
    out.hash = world_.hash();
    out.events = world_.events();
    out.pushes = clients_->answered();
    out.tries = clients_->tries();
    out.moves = moves_ + mover_->moves();
    out.given_up += mover_->given_up();
    out.ps_deaths = cluster_->deaths();
    out.simulated_ns = world_.now();
    out.complaints = ledger_.complaints();
    return out;
  }

  const MovesScenario& scenario_;
  Ledger ledger_;
  sys::sim::World world_;
  Rng rng_;
  MoveContext context_;
  Training training_;
  std::unique_ptr<MoveCluster> cluster_;
  std::unique_ptr<MoveClients> clients_;
  std::unique_ptr<Mover> mover_;  // nullptr: it is dead.
  int64_t moves_ = 0;             // Of movers before.
  MovesReport report_;
};

}  // namespace

MovesScenario draw_moves(uint64_t seed, const Wishes& wishes) {
  Rng rng(seed);
  MovesScenario out;
  out.seed = seed;
  out.ps = static_cast<int>(rng.between(2, 4));
  out.lanes = static_cast<int>(rng.between(1, 3));
  out.variables = 2 * static_cast<int>(rng.between(1, 4));
  // In most runs, so that a snapshot is one piece; or some.
  out.rows = rng.chance(0.85) ? 1 << 11 : 1 << 17;
  out.clients = wishes.workers > 0 ? wishes.workers : static_cast<int>(rng.between(1, 8));
  out.delay_ns = sized(rng, 50 * kMicrosecond, 20 * kMillisecond);
  out.think_ns = sized(rng, 5 * kMillisecond, 200 * kMillisecond);
  out.deadline_ns = sized(rng, 50 * kMillisecond, kSecond);
  out.lost = rng.chance(0.5) ? 0.2 * rng.unit() : 0;
  out.twice = rng.chance(0.5) ? 0.3 * rng.unit() : 0;
  out.rest_ns = sized(rng, 20 * kMillisecond, kSecond);
  out.take_ns = sized(rng, 500 * kMillisecond, 4 * kSecond);
  out.cancelled = rng.chance(0.5) ? 0.05 * rng.unit() : 0;
  out.notice_ns = sized(rng, 5 * kMillisecond, 500 * kMillisecond);
  out.accident = rng.chance(0.5) ? 0.2 * rng.unit() : 0;
  out.standby_timeout_ns = sized(rng, 100 * kMillisecond, 2 * kSecond);
  out.break_ns = pause(rng, kNone, 100 * kMillisecond, 5 * kSecond);
  out.ps_death_ns = pause(rng, kNone, 500 * kMillisecond, 10 * kSecond);
  out.mover_death_ns = pause(rng, kNone, 300 * kMillisecond, 10 * kSecond);
  out.stall_ns = pause(rng, kNone, 200 * kMillisecond, 5 * kSecond);
  const double seconds =
      wishes.seconds > 0 ? wishes.seconds : static_cast<double>(rng.between(10, 40));
  out.end_ns = static_cast<int64_t>(seconds * 1e9);
  out.calm_at_ns = out.end_ns * 6 / 10;
  return out;
}

std::string MovesScenario::to_string() const {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
  return fmt::format(
      "moves, {} ps of {} lanes, {} variables of {} rows, {} clients; messages {} ms, think {} ms, "
      "deadline "
      "{} ms, lost {:.3f}, twice {:.3f}; a rest of {} ms, {} ms to take, cancelled {:.4f}, noticed "
      "after {} ms, accidents {:.3f}; a standby for {} ms; faults each ms: break {}, ps death {}, "
      "mover death {}, stall {}; calm at {} of {} s",
      ps, lanes, variables, rows, clients, ms(delay_ns), ms(think_ns), ms(deadline_ns), lost, twice,
      ms(rest_ns), ms(take_ns), cancelled, ms(notice_ns), accident, ms(standby_timeout_ns),
      ms(break_ns), ms(ps_death_ns), ms(mover_death_ns), ms(stall_ns), ms(calm_at_ns) / 1e3,
      ms(end_ns) / 1e3);
}

std::string MovesReport::to_string() const {
  return fmt::format(
      "trace {:016x}, {} events; {} pushes answered of {} tries; {} moves, {} of them in calm, {} "
      "given up; {} deaths of servers, {} of movers; {:.1f} s simulated",
      hash, events, pushes, tries, moves, calm_moves, given_up, ps_deaths, mover_deaths,
      static_cast<double>(simulated_ns) / 1e9);
}

MovesReport run_moves(const MovesScenario& scenario,
                      std::function<void(int64_t now_ns, std::string_view)> trace) {
  return MovesSimulation(scenario, std::move(trace)).run();
}

}  // namespace sidereal::sim
