#include "sidereal/runtime/task_programs.h"

#include "sidereal/program/program.h"

namespace sidereal::runtime {

namespace {

/// The Recv instructions that run in every step, whatever its branches and loops do.
Result<std::vector<Receive>> receives_of(const program::Program& program) {
  std::vector<Receive> out;
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.op != "Recv") continue;
    Receive& one = out.emplace_back();
    SR_ASSIGN_OR_RETURN(one.edge, ir::get_attr<int64_t>(instruction.attrs, "edge"));
    SR_ASSIGN_OR_RETURN(one.source.device,
                        ir::get_attr<std::string>(instruction.attrs, "send_device"));
    one.source.incarnation = static_cast<uint64_t>(
        ir::attr_or<int64_t>(instruction.attrs, "send_device_incarnation", 0));
    one.count = instruction.outputs.size();
  }
  return out;
}

}  // namespace

TaskPrograms::TaskPrograms(const TaskOptions& options) : options_(options) {
  exec::register_kernels(&kernels_);
  kernels_.allow_control();
  set_environment(shared_.get());
}

void TaskPrograms::set_environment(Space* space) const {
  space->environment.resources = &space->manager;
  space->environment.host_functions = options_.host_functions.get();
}

Status TaskPrograms::unknown_session() const {
  return base::aborted("{} does not know the session: it was closed, or the task was restarted",
                       options_.name);
}

Status TaskPrograms::unknown_program(uint64_t program) const {
  return base::not_found("{} has no program {:016x}", options_.name, program);
}

Status TaskPrograms::open_session(uint64_t id, bool isolated) {
  Session session{.space = shared_, .isolated = isolated};
  if (isolated) {
    session.space = std::make_shared<Space>();
    set_environment(session.space.get());
  }
  const std::lock_guard lock(mutex_);
  if (sessions_.contains(id)) {
    return base::make_status(StatusCode::kAlreadyExists, "the session is open");
  }
  if (sessions_.size() >= options_.sessions_max) {
    return base::resource_exhausted("{} has {} sessions open, as many as it takes; close some",
                                    options_.name, sessions_.size());
  }
  sessions_[id] = std::move(session);
  return {};
}

TaskPrograms::Closed TaskPrograms::close_session(uint64_t id) {
  Closed out;
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.extract(id);
  if (found.empty()) return out;
  Session& session = found.mapped();
  session.stop->raise(exec::StopSignal::Reason::kCancelled);
  out.programs.resize(static_cast<size_t>(options_.lanes));
  for (auto& [key, program] : session.programs) {
    out.programs[static_cast<size_t>(key.second)].push_back(std::move(program));
  }
  if (session.isolated) out.own = std::move(session.space);
  return out;
}

void TaskPrograms::forget_unused() {
  const std::lock_guard lock(mutex_);
  std::erase_if(programs_, [](const auto& one) { return one.second.expired(); });
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

std::shared_ptr<LoadedProgram> TaskPrograms::keep(Session* session, const Key& key,
                                                  std::shared_ptr<LoadedProgram> program,
                                                  size_t bytes) {
  // Somebody may have been faster: there is one for a lane, however many bind it.
  std::weak_ptr<LoadedProgram>& known = programs_[{program->space.get(), key}];
  if (std::shared_ptr<LoadedProgram> first = known.lock()) {
    program = std::move(first);
  } else {
    known = program;
  }
  const auto [at, is_new] = session->programs.try_emplace(key, std::move(program));
  if (is_new) session->program_bytes += bytes;
  return at->second;
}

Result<uint64_t> TaskPrograms::add(uint64_t session, const std::string& bytes, int lane) {
  const Key key = {program::content_hash(bytes), lane};
  std::shared_ptr<Space> space;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return unknown_session();
    space = found->second.space;
    SR_RETURN_IF_ERROR(check_room(found->second, key, bytes.size()));
    const auto known = programs_.find({space.get(), key});
    std::shared_ptr<LoadedProgram> program =
        known == programs_.end() ? nullptr : known->second.lock();
    if (program != nullptr) {
      keep(&found->second, key, std::move(program), bytes.size());
      return key.first;
    }
  }
  SR_ASSIGN_OR_RETURN(program::Program program, program::decode(bytes));
  SR_ASSIGN_OR_RETURN(std::shared_ptr<LoadedProgram> loaded,
                      load(std::move(program), std::move(space), lane));
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  keep(&found->second, key, std::move(loaded), bytes.size());
  return key.first;
}

Result<std::shared_ptr<LoadedProgram>> TaskPrograms::load(program::Program program,
                                                          std::shared_ptr<Space> space,
                                                          int lane) const {
  auto out = std::make_shared<LoadedProgram>();
  out->lane = lane;
  SR_ASSIGN_OR_RETURN(out->receives, receives_of(program));
  if (!program::all_calls(program).empty() && !can_call_) {
    return base::failed_precondition("{}: a program calls other tasks, which this protocol cannot",
                                     options_.name);
  }
  out->ahead = ahead_calls(program);
  out->space = std::move(space);
  SR_ASSIGN_OR_RETURN(
      out->bound, exec::BoundProgram::bind(std::move(program), kernels_, out->space->environment));
  return out;
}

const LoadedProgram* TaskPrograms::of_any_lane(const Session& session, uint64_t program) const {
  const auto found = session.programs.lower_bound({program, 0});
  if (found == session.programs.end() || found->first.first != program) return nullptr;
  return found->second.get();
}

Status TaskPrograms::check(uint64_t session, uint64_t program, int64_t feeds) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  const LoadedProgram* const loaded = of_any_lane(found->second, program);
  if (loaded == nullptr) return unknown_program(program);
  return check_feeds(*loaded, feeds);
}

Result<SessionProgram> TaskPrograms::find(uint64_t session, uint64_t program, int lane) {
  std::unique_lock lock(mutex_);
  auto found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  const auto exact = found->second.programs.find({program, lane});
  if (exact != found->second.programs.end()) {
    return SessionProgram{.program = exact->second, .stop = found->second.stop};
  }
  const LoadedProgram* const other = of_any_lane(found->second, program);
  if (other == nullptr) return unknown_program(program);
  program::Program copy = other->bound->program();
  std::shared_ptr<Space> space = found->second.space;
  lock.unlock();
  SR_ASSIGN_OR_RETURN(std::shared_ptr<LoadedProgram> loaded,
                      load(std::move(copy), std::move(space), lane));
  lock.lock();
  found = sessions_.find(session);
  if (found == sessions_.end()) return unknown_session();
  return SessionProgram{.program = keep(&found->second, {program, lane}, std::move(loaded), 0),
                        .stop = found->second.stop};
}

int64_t TaskPrograms::sessions() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(sessions_.size());
}

int64_t TaskPrograms::programs() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(programs_.size());
}

Status check_feeds(const LoadedProgram& program, int64_t feeds) {
  const auto wanted = static_cast<int64_t>(program.bound->program().feeds.size());
  if (feeds == wanted) return {};
  return base::invalid_argument("{} feeds for a program that takes {}", feeds, wanted);
}

}  // namespace sidereal::runtime
