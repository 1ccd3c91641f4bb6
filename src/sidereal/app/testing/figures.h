#pragma once

#include <string>

#include "sidereal/service/figures_message.h"
#include "sidereal/service/session.pb.h"

/// For tests: figures of a task that said its status.
namespace sidereal::app {

/// That of sidereal_task_NAME.
inline int64_t task_figure(const session::v1::TaskStatus& status, const std::string& name) {
  return service::figures_of(status).value("sidereal_task_" + name);
}

/// How many connections and requests it refused for a reason.
inline int64_t refused_for(const session::v1::TaskStatus& status, const std::string& why) {
  return service::figures_of(status).series("sidereal_refused_total{why=\"" + why + "\"}");
}

}  // namespace sidereal::app
