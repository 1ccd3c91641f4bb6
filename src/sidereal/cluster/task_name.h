#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Full names of tasks, which those of their devices begin with.
namespace sidereal::cluster {

/// A task as its name says it. Value type.
struct TaskName {
  std::string job;
  int index = 0;
};

/// The full name of the task of a job: "/job:ps/replica:0/task:0".
std::string task_name(std::string_view job, int index);
/// The reverse; nothing for what is no such name.
std::optional<TaskName> parse_task_name(std::string_view name);
/// The task of a full device name: what stands before "/device:".
std::string task_of(std::string_view device);

}  // namespace sidereal::cluster
