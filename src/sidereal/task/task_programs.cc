#include "sidereal/task/task_programs.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "sidereal/exec/saving.h"
#include "sidereal/metrics/staleness.h"
#include "sidereal/program/program.h"
#include "sidereal/task/change_reading.h"

namespace sidereal::task {

namespace {

Result<size_t> peer_of(const program::Instruction& instruction) {
  SR_ASSIGN_OR_RETURN(const auto peer, ir::get_attr<int64_t>(instruction.attrs, "peer"));
  if (peer >= 0 && peer < static_cast<int64_t>(kPeersMax)) return static_cast<size_t>(peer);
  return base::invalid_argument("{} '{}' names peer {}; peers are numbered from 0 to {}",
                                instruction.op, instruction.name, peer, kPeersMax - 1);
}

/// How many peers a program, or a body, needs to be given.
Result<size_t> peers_of(const program::Program& program) {
  size_t out = 0;
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.op != "Send" && instruction.op != "Recv") continue;
    SR_ASSIGN_OR_RETURN(const size_t peer, peer_of(instruction));
    out = std::max(out, peer + 1);
  }
  for (const program::Program& body : program.bodies) {
    SR_ASSIGN_OR_RETURN(const size_t inside, peers_of(body));
    out = std::max(out, inside);
  }
  return out;
}

/// What the Recv instructions bring that run in every step, whatever its branches and loops do.
Result<std::vector<Receives>> receives_of(const program::Program& program) {
  std::map<size_t, std::vector<Receives::TensorGroup>> by_peer;
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.op != "Recv") continue;
    SR_ASSIGN_OR_RETURN(const size_t peer, peer_of(instruction));
    Receives::TensorGroup& one = by_peer[peer].emplace_back();
    SR_ASSIGN_OR_RETURN(one.edge, ir::get_attr<int64_t>(instruction.attrs, "edge"));
    one.count = instruction.outputs.size();
  }
  std::vector<Receives> out;
  for (auto& [peer, tensor_groups] : by_peer) {
    out.push_back({.peer = peer, .tensor_groups = std::move(tensor_groups)});
  }
  return out;
}

/// What a session calls a program: its content hash or, as one program may be there with other
/// peers too, a hash of it and of them.
uint64_t number_of(uint64_t hash, const std::vector<ports::TensorSource>& peers) {
  if (peers.empty()) return hash;
  std::string said = fmt::format("{}", hash);
  for (const ports::TensorSource& peer : peers) {
    said += fmt::format(" {}:{} {}", peer.device.size(), peer.device, peer.incarnation);
  }
  return program::content_hash(said);
}

size_t bytes_of(const NewProgram& program) {
  size_t out = program.bytes.size();
  for (const ports::TensorSource& peer : program.peers) out += sizeof(peer) + peer.device.size();
  return out;
}

}  // namespace

TaskPrograms::TaskPrograms(const TaskOptions& options, exec::VariableLanes* lanes,
                           std::function<void()> wake,
                           std::shared_ptr<resources::PushCounts> push_counts)
    : options_(options),
      lanes_(lanes),
      wake_(std::move(wake)),
      push_counts_(std::move(push_counts)),
      shared_(make_container()) {
  exec::register_kernels(&kernels_);
}

std::shared_ptr<Container> TaskPrograms::make_container(std::string group) const {
  auto out = std::make_shared<Container>();
  out->group = std::move(group);
  out->number = ++containers_made_;
  out->environment.resources = &out->manager;
  out->environment.host_functions = options_.host_functions.get();
  out->environment.datasets = options_.datasets.get();
  out->environment.disk = options_.disk;
  out->environment.wake = wake_;
  out->environment.lanes = lanes_;
  return out;
}

std::shared_ptr<Container> TaskPrograms::enter(const SessionState& state) {
  switch (state.kind) {
    case SessionState::Kind::kShared:
      return shared_;
    case SessionState::Kind::kOwn: {
      std::shared_ptr<Container> own = make_container();
      own->is_own = true;
      return own;
    }
    case SessionState::Kind::kGroup: {
      Group& group = groups_[state.group];
      ++group.sessions;
      if (group.container == nullptr) group.container = make_container(state.group);
      return group.container;
    }
  }
  return nullptr;
}

bool TaskPrograms::leave(const SessionState& state) {
  if (state.kind != SessionState::Kind::kGroup) return state.kind == SessionState::Kind::kOwn;
  const auto group = groups_.find(state.group);
  --group->second.sessions;
  return end_unused(state.group) != nullptr;
}

std::set<std::shared_ptr<Container>> TaskPrograms::containers() const {
  std::set<std::shared_ptr<Container>> out = {shared_};
  for (const auto& [id, session] : sessions_) out.insert(session.container);
  for (const auto& [name, group] : groups_) out.insert(group.container);
  return out;
}

void TaskPrograms::reset(const std::vector<std::string>& containers) {
  std::vector<std::shared_ptr<Container>> of_sessions = {shared_};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, group] : groups_) of_sessions.push_back(group.container);
  }
  for (const std::shared_ptr<Container>& one : of_sessions) {
    for (const std::string& container : containers) one->manager.erase_container(container);
    one->manager.changed();
  }
}

TaskPrograms::Resources TaskPrograms::resources() const {
  std::set<std::shared_ptr<Container>> all;
  {
    const std::lock_guard lock(mutex_);
    all = containers();
  }
  Resources out;
  for (const std::shared_ptr<Container>& one : all) {
    out.count += static_cast<int64_t>(one->manager.names().size());
    out.bytes += one->manager.bytes();
  }
  return out;
}

Status TaskPrograms::unknown_session() const {
  return base::aborted("{} does not know the session: it was closed, or the task was restarted",
                       options_.name);
}

Status TaskPrograms::unknown_program(uint64_t program) const {
  return base::not_found("{} has no program {:016x}", options_.name, program);
}

void TaskPrograms::for_each_variable(
    const std::function<void(const Container& of, const std::string& name,
                             resources::Variable* variable)>& call) const {
  std::set<std::shared_ptr<Container>> all;
  {
    const std::lock_guard lock(mutex_);
    all = containers();
  }
  for (const std::shared_ptr<Container>& one : all) {
    for (const std::string& name : one->manager.names()) {
      // Others are no variables, or went meanwhile.
      const auto found = one->manager.find<resources::Variable>(name);
      if (found.ok()) call(*one, name, found->get());
    }
  }
}

void TaskPrograms::put_aside_gone() {
  const std::vector<int> gone = pushers_.gone();
  if (gone.empty()) return;
  for_each_variable([&](const Container&, const std::string&, resources::Variable* variable) {
    variable->staleness()->put_aside(gone);
  });
  pushers_.set_free(gone);
}

void TaskPrograms::look_for_checkpoints() {
  if (options_.disk == nullptr) return;
  std::set<std::string> prefixes;
  for (auto& written : push_counts_->written()) prefixes.insert(std::move(written.prefix));
  for (const std::string& prefix : prefixes) {
    push_counts_->commit(prefix, exec::cuts_in_place(options_.disk.get(), prefix));
  }
}

void TaskPrograms::read_staleness(metrics::Readings* into) {
  // There even where nothing was trained.
  into->add(metrics::staleness("", ""), metrics::HistogramSnapshot());
  for (const auto& declare : {metrics::pushes, metrics::pushed_rows, metrics::held_pushes,
                              metrics::held_rows, metrics::unsaved_pushes, metrics::unsaved_rows}) {
    into->add(declare(""), 0);
  }
  // Before the lock is taken, as the disk may be slow.
  look_for_checkpoints();
  const std::vector<uint64_t> committed = push_counts_->committed();
  const std::lock_guard lock(counting_mutex_);
  put_aside_gone();
  const std::vector<std::string> names = pushers_.names();
  for_each_variable([&](const Container&, const std::string& name, resources::Variable* variable) {
    variable->staleness()->read(name, names, committed, into);
  });
}

std::vector<HotVariable> TaskPrograms::hot_variables() const {
  const auto now = std::chrono::system_clock::now();
  std::vector<HotVariable> out;
  for_each_variable(
      [&](const Container& of, const std::string& name, resources::Variable* variable) {
        HotVariable one{.group = of.group,
                        .name = name,
                        .pulls = variable->hot_rows()->pulls.read(kHotRowsMax, now),
                        .pushes = variable->hot_rows()->pushes.read(kHotRowsMax, now)};
        // All parts of a table are told, as their number says what its rows are.
        const bool is_part = resources::table_of(name).size() + name.find('|') + 1 < name.size();
        if (!is_part && one.pulls.total == 0 && one.pushes.total == 0) return;
        if (variable->owner() != nullptr) one.lane = variable->owner()->lane();
        const tensor::Shape& shape = variable->def().shape;
        if (shape.has_rank() && shape.rank() > 0) one.rows = shape.dim(0);
        out.push_back(std::move(one));
      });
  return out;
}

Status TaskPrograms::open_session(uint64_t id, const SessionState& state,
                                  const std::string& worker) {
  std::shared_ptr<const resources::Pushers::Pusher> pusher;
  {
    const std::lock_guard lock(counting_mutex_);
    put_aside_gone();
    pusher = pushers_.enter(worker);
  }
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(held_off_);
  if (sessions_.contains(id)) {
    return base::make_status(StatusCode::kAlreadyExists, "the session is open");
  }
  if (sessions_.size() >= options_.sessions_max) {
    return base::resource_exhausted("{} has {} sessions open, as many as it takes; close some",
                                    options_.name, sessions_.size());
  }
  sessions_[id] = Session{.state = state, .pusher = std::move(pusher), .container = enter(state)};
  return {};
}

uint64_t TaskPrograms::state_of(uint64_t session) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? 0 : found->second.container->number;
}

TaskPrograms::Closed TaskPrograms::close_session(uint64_t id) {
  Closed out;
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.extract(id);
  if (found.empty()) return out;
  Session& session = found.mapped();
  session.stop->raise(exec::StopSignal::Reason::kCancelled);
  out.programs.resize(static_cast<size_t>(options_.lanes));
  for (auto& [key, registered] : session.programs) {
    out.programs[static_cast<size_t>(key.second)].push_back(std::move(registered.program));
  }
  if (!leave(session.state)) return out;
  out.container = std::move(session.container);
  out.container->ended.store(true, std::memory_order_release);
  return out;
}

Result<std::shared_ptr<Container>> TaskPrograms::container(const std::string& state_group) const {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(held_off_);
  if (state_group.empty()) return shared_;
  if (state_group != kOnlyGroup) {
    const auto found = groups_.find(state_group);
    if (found != groups_.end()) return found->second.container;
    return base::not_found("{} has no sessions of group '{}' now", options_.name, state_group);
  }
  if (groups_.size() == 1) return groups_.begin()->second.container;
  if (groups_.empty()) {
    return base::not_found("{} has no sessions of any group now", options_.name);
  }
  std::string names;
  for (const auto& [name, group] : groups_) names += (names.empty() ? "" : ", ") + name;
  return base::failed_precondition("{} has sessions of several groups, say which: {}",
                                   options_.name, names);
}

void TaskPrograms::hold_off(Status why) {
  const std::lock_guard lock(mutex_);
  held_off_ = std::move(why);
}

std::vector<std::string> TaskPrograms::groups() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, group] : groups_) out.push_back(name);
  return out;
}

std::shared_ptr<Container> TaskPrograms::end_unused(const std::string& state_group) {
  const auto found = groups_.find(state_group);
  const Group& group = found->second;
  if (group.sessions > 0 || group.is_kept || group.keepers > 0) return nullptr;
  std::shared_ptr<Container> out = group.container;
  groups_.erase(found);
  return out;
}

void TaskPrograms::stop_keeping_groups() {
  std::vector<std::shared_ptr<Container>> ended;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> kept;
    for (auto& [name, group] : groups_) {
      if (std::exchange(group.is_kept, false)) kept.push_back(name);
    }
    for (const std::string& name : kept) ended.push_back(end_unused(name));
  }
  for (const auto& container : ended) end(container.get());
}

void TaskPrograms::end(Container* container) {
  if (container == nullptr) return;
  container->ended.store(true, std::memory_order_release);
  container->manager.clear();
}

Status TaskPrograms::keep_group(const std::string& state_group) {
  SR_RETURN_IF_ERROR(session_state(/*isolated=*/false, state_group).status());
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(held_off_);
  if (state_group.empty()) return {};
  Group& group = groups_[state_group];
  if (group.container == nullptr) group.container = make_container(state_group);
  ++group.keepers;
  return {};
}

void TaskPrograms::let_go_of_group(const std::string& state_group) {
  if (state_group.empty()) return;
  std::shared_ptr<Container> ended;
  {
    const std::lock_guard lock(mutex_);
    --groups_.at(state_group).keepers;
    ended = end_unused(state_group);
  }
  end(ended.get());
}

void TaskPrograms::forget_unused() {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(programs_, [](const auto& one) { return one.second.expired(); });
  }
  // Who reads meanwhile does it the next time: a lane does not wait for that.
  const std::unique_lock lock(counting_mutex_, std::try_to_lock);
  if (lock.owns_lock()) put_aside_gone();
}

void TaskPrograms::stop_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, session] : sessions_) session.stop->raise(exec::StopSignal::Reason::kCancelled);
}

Status TaskPrograms::check_room(const Session& session, const Key& key, size_t bytes) const {
  if (session.programs.contains(key)) return {};
  if (session.programs.size() < options_.programs_max &&
      session.program_bytes + bytes <= options_.program_bytes_max) {
    return {};
  }
  return base::resource_exhausted(
      "the session has {} programs of {} bytes on {}, one for each set of feeds, fetches and "
      "targets; {} programs of {} bytes are allowed: make a new session",
      session.programs.size(), session.program_bytes, options_.name, options_.programs_max,
      options_.program_bytes_max);
}

Status TaskPrograms::keep(Session* session, const Key& key, Registered registered, size_t bytes) {
  // Somebody may have been faster: there is one for a lane, however many bind it.
  std::shared_ptr<LoadedProgram>& program = registered.program;
  std::weak_ptr<LoadedProgram>& known =
      programs_[{program->container.get(), {program->hash, key.second}}];
  if (std::shared_ptr<LoadedProgram> first = known.lock()) {
    program = std::move(first);
  } else {
    known = program;
  }
  if (registered.peers->size() < program->peers) {
    return base::invalid_argument("{}: a program names {} peers, and was registered with {}",
                                  options_.name, program->peers, registered.peers->size());
  }
  const bool is_new = session->programs.try_emplace(key, std::move(registered)).second;
  if (is_new) session->program_bytes += bytes;
  return {};
}

Result<uint64_t> TaskPrograms::add(uint64_t session, NewProgram program, int lane) {
  if (program.peers.size() > kPeersMax) {
    return base::invalid_argument("{}: a program was registered with {} peers; {} are allowed",
                                  options_.name, program.peers.size(), kPeersMax);
  }
  const uint64_t hash = program::content_hash(program.bytes);
  const Key key = {number_of(hash, program.peers), lane};
  const size_t bytes = bytes_of(program);
  Registered made = {
      .program = nullptr,
      .peers = std::make_shared<const std::vector<ports::TensorSource>>(std::move(program.peers))};
  std::shared_ptr<Container> container;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return unknown_session();
    container = found->second.container;
    SR_RETURN_IF_ERROR(check_room(found->second, key, bytes));
    const auto known = programs_.find({container.get(), {hash, lane}});
    if (known != programs_.end()) made.program = known->second.lock();
    if (made.program != nullptr) {
      SR_RETURN_IF_ERROR(keep(&found->second, key, std::move(made), bytes));
      return key.first;
    }
  }
  SR_ASSIGN_OR_RETURN(program::Program decoded, program::decode(program.bytes));
  SR_ASSIGN_OR_RETURN(made.program, load(std::move(decoded), hash, std::move(container), lane));
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  SR_RETURN_IF_ERROR(keep(&found->second, key, std::move(made), bytes));
  return key.first;
}

Result<std::shared_ptr<LoadedProgram>> TaskPrograms::load(program::Program program, uint64_t hash,
                                                          std::shared_ptr<Container> container,
                                                          int lane) const {
  auto out = std::make_shared<LoadedProgram>();
  out->lane = lane;
  out->hash = hash;
  SR_ASSIGN_OR_RETURN(out->peers, peers_of(program));
  SR_ASSIGN_OR_RETURN(out->receives, receives_of(program));
  if (!program::all_calls(program).empty() && !can_call_) {
    return base::failed_precondition("{}: a program calls other tasks, which this protocol cannot",
                                     options_.name);
  }
  out->ahead = prefetched_calls(program);
  out->container = std::move(container);
  exec::Environment environment = out->container->environment;
  environment.lane = lane;
  environment.keep = out->container;
  SR_ASSIGN_OR_RETURN(out->bound,
                      exec::BoundProgram::bind(std::move(program), kernels_, environment));
  return out;
}

const TaskPrograms::Registered* TaskPrograms::of_any_lane(const Session& session,
                                                          uint64_t program) const {
  const auto found = session.programs.lower_bound({program, 0});
  if (found == session.programs.end() || found->first.first != program) return nullptr;
  return &found->second;
}

Status TaskPrograms::check(uint64_t session, uint64_t program, int64_t feeds) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  const Registered* const registered = of_any_lane(found->second, program);
  if (registered == nullptr) return unknown_program(program);
  return check_feeds(*registered->program, feeds);
}

Result<base::RefPtr<SessionProgram>> TaskPrograms::find(uint64_t session, uint64_t program,
                                                        int lane) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  const auto exact = found->second.programs.find({program, lane});
  if (exact != found->second.programs.end()) {
    auto out = base::RefPtr<SessionProgram>::make();
    out->loaded = exact->second.program;
    out->peers = exact->second.peers;
    out->stop = found->second.stop;
    out->pusher = found->second.pusher;
    return out;
  }
  if (of_any_lane(found->second, program) == nullptr) return unknown_program(program);
  return base::not_found("{} has program {:016x} on another lane than {}, where it was to run",
                         options_.name, program, lane);
}

int64_t TaskPrograms::sessions() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(sessions_.size());
}

int64_t TaskPrograms::programs() const {
  const std::lock_guard lock(mutex_);
  // What a step held longer than its session has gone by itself, and left its place.
  return std::count_if(programs_.begin(), programs_.end(),
                       [](const auto& one) { return !one.second.expired(); });
}

Status check_feeds(const LoadedProgram& program, int64_t feeds) {
  const auto wanted = static_cast<int64_t>(program.bound->program().feeds.size());
  if (feeds == wanted) return {};
  return base::invalid_argument("{} feeds for a program that takes {}", feeds, wanted);
}

}  // namespace sidereal::task
