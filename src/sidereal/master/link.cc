#include "sidereal/master/link.h"

#include <utility>

namespace sidereal::master {

namespace {

class LocalPart final : public task::StepPart {
 public:
  LocalPart(task::Task* task, uint64_t step) : task_(task), step_(step) {}
  void cancel() override { task_->cancel(step_); }
  void end() override { task_->end_step(step_); }

 private:
  task::Task* const task_;
  const uint64_t step_;
};

class LocalLink final : public Link {
 public:
  LocalLink(task::Task* task, uint64_t session, task::SessionState state)
      : task_(task), session_(session), state_(std::move(state)) {}

  void attach(std::function<void(Result<Attached>)> done) override {
    const Status opened = task_->open_session(session_, state_, task_->name());
    if (!opened.ok()) return done(opened);
    done(Attached{.incarnation = task_->incarnation(), .lanes = task_->lanes()});
  }
  void register_program(task::NewProgram program,
                        std::function<void(Result<uint64_t>)> done) override {
    done(task_->register_program(session_, std::move(program)));
  }
  std::shared_ptr<task::StepPart> run(task::ProgramCall call,
                                      std::function<void(task::ProgramResult)> done) override {
    call.session = session_;
    auto part = std::make_shared<LocalPart>(task_, call.step);
    task_->run(&call, [task = task_, done = std::move(done)](task::ProgramResult& result) {
      // The task has pushed itself: this count is lost with the task.
      task->answered_pushes(0).note(result.pushed);
      done(std::move(result));
    });
    return part;
  }
  void detach() override { task_->close_session(session_); }
  [[nodiscard]] bool is_local() const override { return true; }

 private:
  task::Task* const task_;
  const uint64_t session_;
  const task::SessionState state_;
};

}  // namespace

std::shared_ptr<Link> local_link(task::Task* task, uint64_t session, task::SessionState state) {
  return std::make_shared<LocalLink>(task, session, std::move(state));
}

}  // namespace sidereal::master
