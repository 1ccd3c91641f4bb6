#include "sidereal/service/follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "sidereal/base/part_name.h"
#include "sidereal/base/strings.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/internal/follower_task.h"
#include "sidereal/service/status_client.h"
#include "sidereal/sys/posix/process.h"

namespace sidereal::service {

using resources::Replica;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::Tensor;

namespace {

/// How often streams that broke, and tables that are waited for, are looked after.
constexpr milliseconds kLook{100};
/// How often a look-up begins again while variables come and go.
constexpr int kTries = 3;
/// For a message.
std::string quoted_names(const std::vector<std::string>& names) {
  constexpr size_t kNamesMax = 20;
  const auto quoted = [](const std::string& name) { return fmt::format("'{}'", name); };
  return names.empty() ? "none" : base::some_of(names, kNamesMax, quoted);
}

}  // namespace

Result<std::unique_ptr<Follower>> Follower::create(StatusClient* client, milliseconds limit,
                                                   const std::string& job,
                                                   const security::SecurityOptions& security,
                                                   const FollowOptions& options) {
  std::vector<FollowedAddress> tasks;
  for (const TaskReport& report : client->ask(limit, job)) {
    tasks.push_back({.task = report.task, .address = report.address});
  }
  if (tasks.empty()) {
    return base::invalid_argument("the cluster has no job '{}'; it has: {}", job,
                                  quoted_names(client->jobs()));
  }
  return create(tasks, security, options);
}

Result<std::unique_ptr<Follower>> Follower::create(const std::vector<FollowedAddress>& tasks,
                                                   const security::SecurityOptions& security,
                                                   const FollowOptions& options) {
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                      security::Credentials::create(security));
  return create(tasks, credentials, options);
}

Result<std::unique_ptr<Follower>> Follower::create(
    const std::vector<FollowedAddress>& tasks,
    const std::shared_ptr<const security::Credentials>& credentials, const FollowOptions& given) {
  FollowOptions options = given;
  if (options.bytes_max == 0) {
    options.bytes_max = static_cast<size_t>(sys::posix::process_figures().memory_limit);
  }
  if (tasks.empty()) return base::invalid_argument("there is no task to follow");
  std::vector<std::shared_ptr<Task>> made;
  for (const FollowedAddress& one : tasks) {
    made.push_back(std::make_shared<Task>(one, make_channel(one.address, *credentials), options));
  }
  return std::unique_ptr<Follower>(new Follower(std::move(made), std::move(options)));
}

Follower::Follower(std::vector<std::shared_ptr<Task>> tasks, FollowOptions options)
    : tasks_(std::move(tasks)),
      options_(std::move(options)),
      looking_([this] { keep_looking(); }) {}

Follower::~Follower() { stop(); }

void Follower::stop() {
  {
    const std::lock_guard lock(end_mutex_);
    if (std::exchange(has_ended_, true)) return;
    end_.notify_all();
  }
  looking_.join();
  for (const auto& task : tasks_) task->stop();
}

size_t Follower::bytes() const {
  size_t out = 0;
  for (const auto& task : tasks_) out += task->bytes();
  return out;
}

void Follower::lay_out(size_t bytes_max) {
  for (const auto& task : tasks_) task->lay_out(bytes_max);
}

std::vector<Replica::Taken> Follower::take_all() {
  std::vector<Replica::Taken> out;
  for (const auto& task : tasks_) {
    for (Replica::Taken& one : task->take_all()) out.push_back(std::move(one));
  }
  return out;
}

std::vector<std::string> Follower::groups() const { return tasks_.front()->groups(); }

std::unique_ptr<Follower::Held> Follower::hold(uint64_t life) {
  return Task::hold(tasks_.front(), life);
}

uint64_t Follower::deposed_by(uint64_t life) const { return tasks_.front()->deposed_by(life); }

void Follower::keep_looking() {
  std::unique_lock lock(end_mutex_);
  while (!has_ended_) {
    lock.unlock();
    for (const auto& task : tasks_) task->look();
    lock.lock();
    end_.wait_for(lock, kLook, [this] { return has_ended_; });
  }
}

Status Follower::wait_until_current(milliseconds limit, const std::function<bool()>& is_cancelled) {
  const steady_clock::time_point deadline = steady_clock::now() + limit;
  const uint64_t mark = ++marks_;
  for (const auto& task : tasks_) task->ask(mark);
  for (const auto& task : tasks_) {
    SR_RETURN_IF_ERROR(task->wait(mark, deadline, is_cancelled));
  }
  for (const std::string& name : options_.tables) {
    SR_RETURN_IF_ERROR(wait_for_table(name, deadline, is_cancelled));
  }
  return {};
}

Status Follower::wait_for_table(const std::string& name, steady_clock::time_point deadline,
                                const std::function<bool()>& is_cancelled) {
  while (true) {
    Status missing = table(name).status();
    if (missing.ok() || steady_clock::now() >= deadline) return missing;
    if (is_cancelled != nullptr && is_cancelled()) {
      return base::cancelled("waiting for table '{}' was cancelled: {}", name,
                             base::message_of(missing));
    }
    std::unique_lock lock(end_mutex_);
    const auto until = std::min(deadline, steady_clock::now() + kLook);
    if (end_.wait_until(lock, until, [this] { return has_ended_; })) return missing;
  }
}

std::vector<FollowedTask> Follower::tasks() const {
  std::vector<FollowedTask> out;
  for (const auto& task : tasks_) out.push_back(task->now());
  return out;
}

std::vector<FollowedTask> Follower::take_news() {
  std::vector<FollowedTask> out;
  for (const auto& task : tasks_) out.push_back(task->take_news());
  return out;
}

Result<std::map<std::string, Tensor>> Follower::values(const Choose& choose) const {
  std::map<std::string, Tensor> out;
  for (const auto& task : tasks_) SR_RETURN_IF_ERROR(task->copy_to(choose, &out));
  return out;
}

/// Which tables there are, and where their parts are. Value type.
struct Follower::Catalog {
  struct Table {
    TableLayout layout;
    std::vector<const Task*> tasks = {};  ///< Of the parts.
  };
  bool is_begun = true;                 ///< All tasks have been whole; else there is nothing.
  std::vector<uint64_t> versions = {};  ///< Of the variables of each task, that it is of.
  std::map<std::string, Result<Table>, std::less<>> tables = {};
  std::set<std::string, std::less<>> others = {};  ///< Variables that are no tables.

  static Catalog of(const std::vector<std::shared_ptr<Task>>& tasks, Parts parts, PartsSeen* seen,
                    Holders* holders);
};

Follower::Catalog Follower::Catalog::of(const std::vector<std::shared_ptr<Task>>& tasks,
                                        Parts parts, PartsSeen* seen, Holders* holders) {
  Catalog out;
  for (const auto& task : tasks) out.is_begun = out.is_begun && task->was_whole();
  if (!out.is_begun) return out;  // What is here may be some of the parts of a table.
  std::map<std::string, VariableForm> forms;
  Holders now;
  for (const auto& task : tasks) {
    out.versions.push_back(task->replica().variables_version());
    std::map<std::string, VariableForm> its;
    std::vector<std::string> names;
    task->replica().each_variable(
        [&](const std::string& name, tensor::DType dtype, const tensor::Shape& shape) {
          its[name] = {dtype, shape};
          names.push_back(name);
        });
    for (const std::string& name : without_slots(names)) {
      forms.emplace(name, its.at(name));
      now[name].push_back(task.get());
    }
  }
  // In the order in which they came.
  for (auto& [name, tasks_now] : now) {
    const std::vector<const Task*>& before = (*holders)[name];
    std::ranges::stable_sort(tasks_now, {}, [&](const Task* task) {
      return std::ranges::find(before, task) - before.begin();
    });
  }
  *holders = std::move(now);
  const auto is_twice = [&](const std::string& name) {
    // A part that two have goes from the one to the other.
    return holders->at(name).size() > 1 && base::split_part(name).first == name;
  };
  TableLayouts layouts = layouts_of(forms, parts, seen);
  out.others = {layouts.others.begin(), layouts.others.end()};
  for (auto& [name, layout] : layouts.tables) {
    if (!layout.ok()) {
      out.tables.emplace(name, layout.status());
      continue;
    }
    Table table{.layout = *std::move(layout)};
    Status status;
    for (const std::string& part : table.layout.variables) {
      table.tasks.push_back(holders->at(part).back());
      if (is_twice(part)) {
        status = base::failed_precondition("two tasks have '{}'", part);
      }
    }
    out.tables.emplace(name, status.ok() ? Result<Table>(std::move(table)) : status);
  }
  return out;
}

std::shared_ptr<const Follower::Catalog> Follower::catalog() const {
  const std::lock_guard lock(catalog_mutex_);
  bool is_it = catalog_ != nullptr && catalog_->is_begun;
  for (size_t i = 0; i < tasks_.size() && is_it; ++i) {
    is_it = tasks_[i]->replica().variables_version() == catalog_->versions[i];
  }
  if (is_it) return catalog_;
  catalog_ =
      std::make_shared<const Catalog>(Catalog::of(tasks_, options_.parts, &parts_seen_, &holders_));
  return catalog_;
}

/// Of a table that cannot be looked up.
Status Follower::why_not(const Catalog& catalog, std::string_view table) const {
  for (const auto& task : tasks_) SR_RETURN_IF_ERROR(task->check_whole());
  if (!catalog.is_begun) return base::unavailable("not all of the tasks is here yet");
  if (const auto found = catalog.tables.find(table); found != catalog.tables.end()) {
    return found->second.status();
  }
  if (catalog.others.contains(table)) {
    return base::invalid_argument("'{}' is no table: that is numbers [rows, dim]", table);
  }
  std::vector<std::string> names;
  for (const auto& [name, one] : catalog.tables) names.push_back(name);
  return base::not_found("there is no table '{}'; there are: {}", table, quoted_names(names));
}

std::map<std::string, FollowedTable> Follower::tables() const {
  const std::shared_ptr<const Catalog> catalog = this->catalog();
  std::map<std::string, FollowedTable> out;
  for (const auto& [name, table] : catalog->tables) {
    if (!table.ok()) continue;
    out[name] = {table->layout.dtype, table->layout.rows, table->layout.dim};
  }
  return out;
}

Result<FollowedTable> Follower::table(std::string_view name) const {
  const std::shared_ptr<const Catalog> catalog = this->catalog();
  const auto found = catalog->tables.find(name);
  if (found == catalog->tables.end() || !found->second.ok()) return why_not(*catalog, name);
  const TableLayout& layout = found->second->layout;
  return FollowedTable{layout.dtype, layout.rows, layout.dim};
}

Status Follower::look_up(std::string_view table, std::span<const int64_t> ids,
                         std::span<std::byte> to) const {
  std::shared_ptr<const Catalog> catalog = this->catalog();
  for (int i = 1;; ++i) {
    Status status = look_up_once(*catalog, table, ids, to);
    if (status.ok() || i == kTries) return status;
    std::shared_ptr<const Catalog> next = this->catalog();
    if (next == catalog) return status;
    catalog = std::move(next);
  }
}

Status Follower::look_up_once(const Catalog& catalog, std::string_view table,
                              std::span<const int64_t> ids, std::span<std::byte> to) const {
  const auto found = catalog.tables.find(table);
  if (found == catalog.tables.end() || !found->second.ok()) return why_not(catalog, table);
  const TableLayout& layout = found->second->layout;
  const std::vector<const Task*>& tasks = found->second->tasks;
  const size_t row_bytes = layout.row_bytes();
  if (to.size() / std::max<size_t>(row_bytes, 1) < ids.size() ||
      to.size() != ids.size() * row_bytes) {
    return base::invalid_argument("{} rows of '{}' have {} bytes each, and there is room for {}",
                                  ids.size(), table, row_bytes, to.size());
  }
  std::vector<std::vector<Replica::Pick>> picks(layout.variables.size());
  if (picks.size() == 1) picks[0].reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= layout.rows) {
      return base::invalid_argument("id {} is not in table '{}', which has {} rows", ids[i], table,
                                    layout.rows);
    }
    if (ids[i] < 0) {
      if (row_bytes > 0) std::memset(to.data() + i * row_bytes, 0, row_bytes);
      continue;
    }
    const TableLayout::Place place = layout.place(ids[i]);
    picks[place.part].push_back({.row = place.row, .to = i});
  }
  for (size_t part = 0; part < picks.size(); ++part) {
    if (picks[part].empty()) continue;
    SR_RETURN_IF_ERROR(tasks[part]->replica().look_up(layout.variables[part], layout.dtype,
                                                      row_bytes, picks[part], to.data()));
  }
  return {};
}

}  // namespace sidereal::service
