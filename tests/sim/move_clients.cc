#include "tests/sim/move_clients.h"

#include <algorithm>
#include <utility>

#include "sidereal/resources/changes_made.h"

namespace sidereal::sim {

using sys::kMillisecond;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// Before a push is tried again.
constexpr int64_t kAgain = 20 * kMillisecond;

}  // namespace

MoveClients::MoveClients(const MoveContext& context, MoveCluster* cluster, const Training* training)
    : context_(context),
      cluster_(cluster),
      training_(training),
      rng_(context.world->random().fork()),
      clients_(static_cast<size_t>(context.scenario->clients)),
      next_row_(static_cast<size_t>(context.scenario->variables), 1) {
  for (size_t i = 0; i < clients_.size(); ++i) {
    clients_[i].key = rng_.next() | 1;
    later(i, rng_.around(context.scenario->think_ns));
  }
}

void MoveClients::later(size_t client, int64_t ns) {
  context_.world->after(ns, [this, client] { next(client); });
}

void MoveClients::go_on() {
  is_held_ = false;
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (std::exchange(clients_[i].waits, false)) later(i, rng_.around(kMillisecond));
  }
}

bool MoveClients::is_drained() const {
  return std::ranges::none_of(clients_, [](const Client& one) { return one.is_trying; });
}

bool MoveClients::has_all_answers() const {
  return std::ranges::none_of(clients_, [](const Client& one) { return one.has_push; });
}

bool MoveClients::has_rows() const {
  return std::ranges::any_of(next_row_,
                             [this](int64_t row) { return row < context_.scenario->rows; });
}

void MoveClients::next(size_t client) {
  Client& one = clients_[client];
  if (is_held_) {
    one.waits = true;
  } else if (one.has_push || choose(&one)) {
    begin_try(client);
  }
}

bool MoveClients::choose(Client* client) {
  if (is_quiet_) return false;
  const auto variable = static_cast<size_t>(rng_.below(next_row_.size()));
  if (next_row_[variable] == context_.scenario->rows) {
    // Another one may have some.
    if (has_rows()) later(static_cast<size_t>(client - clients_.data()), kAgain);
    return false;
  }
  client->push = pushes_.size();
  pushes_.push_back(
      {.variable = static_cast<int>(variable), .row = next_row_[variable]++, .is_answered = false});
  client->has_push = true;
  ++client->turn;
  return true;
}

void MoveClients::begin_try(size_t client) {
  Client& one = clients_[client];
  one.is_trying = true;
  ++tries_;
  const uint64_t number = ++one.number;
  const Push& push = pushes_[one.push];
  const MovesScenario& scenario = *context_.scenario;
  if (!rng_.chance(scenario.lost)) send(client, push);
  if (rng_.chance(scenario.twice)) send(client, push);
  context_.world->after(rng_.around(scenario.deadline_ns), [this, client, number] {
    if (clients_[client].number == number && clients_[client].is_trying) end_try(client);
  });
}

void MoveClients::send(size_t client, const Push& push) {
  const Client& one = clients_[client];
  const int ps = training_->owners[static_cast<size_t>(push.variable)];
  Tensor ids = Tensor::empty(DType::kInt64, Shape{1});
  ids.data<int64_t>()[0] = push.row;
  Tensor rows = Tensor::empty(DType::kFloat32, Shape{1});
  rows.data<float>()[0] = 1;
  MovePs::Work work = {
      .session = training_->session,
      .what = MoveWork::kPush,
      .variable = push.variable,
      .feeds = {std::move(ids), std::move(rows)},
      .closure = {.client = one.key, .closure = resources::closure_number(client, one.turn)},
      .number = one.turn << 8 | (client + 1)};
  cluster_->send([this, client, number = one.number, ps, work = std::move(work)] {
    MovePs* const there = cluster_->ps(ps);
    if (there == nullptr) return;
    const auto done = [this, client, number, ps](const Status& status, const auto& /*fetches*/) {
      if (rng_.chance(context_.scenario->lost)) return;
      cluster_->send([this, client, number, ps, status] { answered(client, number, ps, status); });
    };
    there->post([there, work, done] { there->run(work, done); });
  });
}

void MoveClients::answered(size_t client, uint64_t number, int ps, const Status& status) {
  Client& one = clients_[client];
  // Of a try that was given up nobody hears.
  if (!one.is_trying || one.number != number) return;
  if (!status.ok()) return end_try(client);
  Push& push = pushes_[one.push];
  if (training_->owners[static_cast<size_t>(push.variable)] != ps) {
    context_.ledger->complain("a push to '{}' was answered by ps {}, which is not its owner",
                              moved_name(push.variable), ps);
  }
  push.is_answered = true;
  context_.world->note("answered", static_cast<uint64_t>(push.variable),
                       static_cast<uint64_t>(push.row));
  ++answered_;
  one.is_trying = false;
  one.has_push = false;
  later(client, rng_.around(context_.scenario->think_ns));
}

void MoveClients::end_try(size_t client) {
  clients_[client].is_trying = false;
  later(client, rng_.around(kAgain));
}

void MoveClients::check(int variable, const Tensor& value) const {
  const std::span<const float> rows = value.data<const float>();
  std::vector<float> left(rows.begin(), rows.end());
  for (const Push& push : pushes_) {
    if (push.variable != variable) continue;
    const float times = std::exchange(left[static_cast<size_t>(push.row)], 0.0F);
    if (times == 1 || (times == 0 && !push.is_answered)) continue;
    context_.ledger->complain("a push to row {} of '{}' was {}, and applied {} times", push.row,
                              moved_name(variable), push.is_answered ? "answered" : "not answered",
                              times);
  }
  if (std::ranges::any_of(left, [](float one) { return one != 0; })) {
    context_.ledger->complain("'{}' has rows that nobody has pushed", moved_name(variable));
  }
}

}  // namespace sidereal::sim
