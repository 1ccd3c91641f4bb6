#include "sidereal/train/checkpointing.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "sidereal/base/event_log.h"
#include "sidereal/base/strings.h"
#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::train {

namespace {

constexpr std::chrono::milliseconds kSaveDeadline(3'600'000);
/// How often it is looked whether all tasks have begun to write.
constexpr std::chrono::milliseconds kLookEvery(2);
/// Steps of a lane before it is known how long they take; then so many times more in each loop.
constexpr int64_t kFirstSteps = 64;
constexpr double kGrowth = 4;
/// A checkpoint by time may come so much earlier: better than a short loop more.
constexpr double kEarly = 0.9;

/// Whether an error is of the files of one checkpoint, so that the one before may be good.
bool is_damage(const Status& status) {
  return status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kNotFound ||
         status.code() == StatusCode::kOutOfRange;
}

const char* remedy_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kResourceExhausted:
      return "make room there, or keep fewer checkpoints";
    case StatusCode::kPermissionDenied:
      return "let the parameter servers write there, or give another directory";
    case StatusCode::kNotFound:
      return "the directory must be there for all parameter servers, by the same path";
    default:
      return "the next one is tried when it is due";
  }
}

}  // namespace

Result<SaveEvery> parse_save_every(const std::string& text) {
  SaveEvery out;
  const std::string_view trimmed = base::trim(text);
  if (trimmed == "epoch") {
    out.epoch = true;
    return out;
  }
  const size_t digits = trimmed.find_first_not_of("0123456789.");
  const std::string number(trimmed.substr(0, digits));
  const std::string_view unit =
      digits == std::string_view::npos ? "" : base::trim(trimmed.substr(digits));
  const Result<double> value = base::parse_double(number);
  const bool is_positive = value.ok() && std::isfinite(*value) && *value > 0;
  if (is_positive && (unit == "steps" || unit == "step") && *value >= 1 && *value < 1e15) {
    out.steps = static_cast<int64_t>(*value);
    return out;
  }
  for (const auto& [name, seconds] : {std::pair("s", 1.0), {"m", 60.0}, {"h", 3600.0}}) {
    if (!is_positive || unit != name) continue;
    out.seconds = *value * seconds;
    return out;
  }
  return base::invalid_argument(
      "'{}' is not how often a checkpoint is saved: that is a time (90s, 5m, 2h), a number of "
      "steps (1000steps), or epoch",
      text);
}

Status check_save_every(const std::string& text) { return parse_save_every(text).status(); }

Result<std::unique_ptr<Checkpointing>> Checkpointing::open(const CheckpointOptions& options,
                                                           Context context) {
  SR_ASSIGN_OR_RETURN(const SaveEvery every, parse_save_every(options.save_every));
  if (options.keep < 0) {
    return base::invalid_argument("keep is {}; it must not be negative (0: all)", options.keep);
  }
  auto out = std::unique_ptr<Checkpointing>(new Checkpointing(every, options, std::move(context)));
  if (options.full_every < 1) {
    return base::invalid_argument("full_every is {}; it must be 1 or more (1: all are whole)",
                                  options.full_every);
  }
  out->disk_ = sys::posix::create_disk();
  SR_ASSIGN_OR_RETURN(out->directory_,
                      CheckpointDirectory::open(out->disk_, options.directory, options.keep));
  return out;
}

Result<std::optional<TrainingState>> Checkpointing::resume(const std::string& data) {
  std::vector<std::string> candidates;
  const bool is_auto = options_.resume.empty() || options_.resume == "auto";
  if (is_auto) {
    candidates = directory_->newest_first();
  } else if (options_.resume != "never") {
    std::error_code error;
    candidates = {std::filesystem::absolute(options_.resume, error).lexically_normal().string()};
  }
  Status damage;
  for (const std::string& prefix : candidates) {
    Result<TrainingState> state = restore(prefix, data);
    if (!state.ok() && is_auto && is_damage(state.status())) {
      if (damage.ok()) damage = state.status();
      context_.tell(fmt::format("checkpoint '{}' is damaged, and is left out: {}", prefix,
                                base::message_of(state.status())));
      continue;
    }
    SR_RETURN_IF_ERROR(state.status());
    directory_->forget_after(prefix);
    resumed_from_ = prefix;
    return std::optional<TrainingState>(*std::move(state));
  }
  if (!damage.ok()) {
    return base::with_message(
        damage, fmt::format("no checkpoint in '{}' can be read; --resume never (resume='never') "
                            "begins anew; of the newest: {}",
                            options_.directory, base::message_of(damage)));
  }
  directory_->forget_after("");
  return std::optional<TrainingState>();
}

Result<TrainingState> Checkpointing::restore(const std::string& prefix, const std::string& data) {
  SR_ASSIGN_OR_RETURN(const auto reader, ckpt::CheckpointReader::open(disk_, prefix));
  SR_ASSIGN_OR_RETURN(TrainingState state, read_state(reader.get(), prefix));
  SR_RETURN_IF_ERROR(check_variables(*reader, prefix, nodes().variables));
  if (!state.position.begun.empty() && state.data != data) {
    return base::invalid_argument(
        "checkpoint '{}' is in the middle of data that was '{}', and is '{}' now: which rows are "
        "left cannot be said; give the same data, order and seed, or begin anew with --resume "
        "never "
        "(resume='never')",
        prefix, state.data, data);
  }
  using tensor::Tensor;
  const Tensor text = Tensor::strings(tensor::Shape(), std::vector<std::string>{prefix});
  SR_RETURN_IF_ERROR(
      context_.placed->first()
          ->run({{nodes().prefix, text}}, {}, {nodes().restore}, {.timeout = kSaveDeadline})
          .status());
  return state;
}

void Checkpointing::start(const TrainingState& state) {
  steps_ = state.steps;
  asked_steps_ = state.steps;
  saved_steps_ = resumed_from_.empty() ? -1 : state.steps;
  saved_points_ = state.validation.size();
  asked_ = Clock::now();
}

int64_t Checkpointing::steps_of_lane() const {
  if (every_.epoch) return 0;
  if (every_.steps > 0) {
    const int64_t left = every_.steps - (steps_ - asked_steps_);
    const int64_t lanes = context_.placed->replicas();
    return std::max<int64_t>(1, (left + lanes - 1) / lanes);
  }
  if (steps_per_s_ == 0) return kFirstSteps;
  const double elapsed = std::chrono::duration<double>(Clock::now() - asked_).count();
  const double left = std::max(every_.seconds - elapsed, every_.seconds * (1 - kEarly));
  const double most = std::max(
      static_cast<double>(kFirstSteps),
      kGrowth * static_cast<double>(steps_) / static_cast<double>(context_.placed->replicas()));
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(left * steps_per_s_, most)));
}

void Checkpointing::loop_ended(int64_t steps, double seconds) {
  steps_ += steps;
  if (steps == 0 || seconds <= 0) return;
  steps_per_s_ =
      static_cast<double>(steps) / static_cast<double>(context_.placed->replicas()) / seconds;
}

bool Checkpointing::is_saving() const {
  if (saving_ == nullptr) return false;
  const std::lock_guard lock(saving_->mutex);
  return !saving_->has_ended;
}

bool Checkpointing::is_due(bool is_epoch) {
  if (every_.epoch) return is_epoch;
  if (every_.steps > 0) return steps_ - asked_steps_ >= every_.steps;
  if (is_saving()) return false;
  collect();
  return std::chrono::duration<double>(Clock::now() - asked_).count() >= every_.seconds * kEarly;
}

Checkpointing::~Checkpointing() { collect(); }

void Checkpointing::save(const TrainingState& state) {
  const Clock::time_point began = Clock::now();
  collect();
  asked_steps_ = steps_;
  asked_ = began;
  const Status begun = begin(state);
  if (!begun.ok()) take(state.steps, state.validation.size(), "", begun);
  if (saving_ != nullptr) wait_for_cut();
  if (waits_) collect();
  context_.report->save_s += std::chrono::duration<double>(Clock::now() - began).count();
}

void Checkpointing::save_last(const TrainingState& state, bool is_other) {
  const Clock::time_point began = Clock::now();
  collect();
  context_.report->save_s += std::chrono::duration<double>(Clock::now() - began).count();
  if (!is_other && saved_steps_ == state.steps && saved_points_ == state.validation.size()) return;
  waits_ = true;
  save(state);
}

Result<bool> Checkpointing::restore_at(size_t points, const std::string& data) {
  for (const std::string& prefix : directory_->newest_first()) {
    const auto reader = ckpt::CheckpointReader::open(disk_, prefix);
    if (!reader.ok() && is_damage(reader.status())) continue;
    SR_RETURN_IF_ERROR(reader.status());
    SR_ASSIGN_OR_RETURN(const TrainingState state, read_state(reader->get(), prefix));
    if (state.validation.size() != points) continue;
    const Status restored = restore(prefix, data).status();
    if (!restored.ok() && is_damage(restored)) continue;
    SR_RETURN_IF_ERROR(restored);
    return true;
  }
  return false;
}

Status Checkpointing::begin(const TrainingState& state) {
  SR_ASSIGN_OR_RETURN(const std::string prefix, directory_->begin(state.steps));
  std::vector<service::Session::Feed> feeds = feeds_of(state, nodes());
  feeds.emplace_back(nodes().prefix,
                     tensor::Tensor::strings(tensor::Shape(), std::vector<std::string>{prefix}));
  base::emit({}, base::Event::kCheckpointBegun, {{"prefix", prefix}});
  saving_ = std::make_unique<Saving>();
  saving_->is_increment = feed_base(prefix, &feeds);
  saving_->steps = state.steps;
  saving_->points = state.validation.size();
  saving_->prefix = prefix;
  // Of one that is saved again, which is rare, the end is waited for.
  if (directory_->data_files(prefix) > 0) waits_ = true;
  const auto write = [session = context_.placed->first(), feeds = std::move(feeds),
                      commit = nodes().commit] {
    return session->run(feeds, {}, {commit}, {.timeout = kSaveDeadline}).status();
  };
  saving_->thread = std::thread([saving = saving_.get(), write] {
    const Status written = write();
    const std::lock_guard lock(saving->mutex);
    saving->status = written;
    saving->has_ended = true;
    saving->ended.notify_all();
  });
  return {};
}

/// Says what a checkpoint is to stand on; whether that is anything.
bool Checkpointing::feed_base(const std::string& prefix,
                              std::vector<service::Session::Feed>* feeds) {
  std::string base = std::exchange(base_, "");
  std::string since;
  if (options_.full_every > 1) {
    // Nobody has this cut: all is saved, and note is kept of what changes from now on.
    since = ckpt::cut_text({sys::posix::create_random()->next()});
    const bool may_stand = !base.empty() && base != prefix && increments_ + 1 < options_.full_every;
    const Result<ckpt::Index> index =
        may_stand ? ckpt::read_index(disk_.get(), base) : base::not_found("");
    if (index.ok()) {
      since = ckpt::cut_text(index->cuts);
    } else {
      base.clear();
    }
  }
  const auto feed = [&](const std::string& place, const std::string& text) {
    feeds->emplace_back(place,
                        tensor::Tensor::strings(tensor::Shape(), std::vector<std::string>{text}));
  };
  feed(nodes().base, base);
  feed(nodes().since, since);
  return !base.empty();
}

/// Until every task has taken its snapshots, as exec/saving.h says, or it has ended.
void Checkpointing::wait_for_cut() {
  std::unique_lock lock(saving_->mutex);
  while (!waits_ &&
         !saving_->ended.wait_for(lock, kLookEvery, [&] { return saving_->has_ended; })) {
    if (directory_->data_files(saving_->prefix) >= nodes().shards) return;
  }
}

/// Waits for the end of what is being saved, and takes note of it.
void Checkpointing::collect() {
  if (saving_ == nullptr) return;
  const std::unique_ptr<Saving> saving = std::move(saving_);
  saving->thread.join();
  waits_ = false;
  if (saving->status.ok()) saving->status = directory_->add(saving->prefix);
  if (saving->status.ok()) {
    base_ = saving->prefix;
    increments_ = saving->is_increment ? increments_ + 1 : 0;
  }
  take(saving->steps, saving->points, saving->prefix, saving->status);
}

void Checkpointing::take(int64_t steps, size_t points, const std::string& prefix,
                         const Status& saved) {
  base::EventFields fields = {{"prefix", prefix}, {"seconds", Clock::now() - asked_}};
  if (!saved.ok()) fields.emplace_back("why", base::message_of(saved));
  base::emit({}, saved.ok() ? base::Event::kCheckpointWritten : base::Event::kCheckpointFailed,
             fields);
  if (saved.ok()) {
    saved_steps_ = steps;
    saved_points_ = points;
    ++context_.report->saved;
    context_.report->latest = prefix;
    return;
  }
  // Steps may have changed more meanwhile than can be kept apart.
  waits_ = saved.code() == StatusCode::kResourceExhausted;
  ++context_.report->failed;
  if (context_.report->first_failure.empty()) {
    context_.report->first_failure = base::message_of(saved);
  }
  const char* const whole = options_.full_every > 1 ? ". The next one is a whole one" : "";
  context_.tell(fmt::format("no checkpoint was saved at step {}, and training goes on: {}; {}{}",
                            steps, base::message_of(saved), remedy_of(saved), whole));
}

}  // namespace sidereal::train
