#pragma once

#include "sidereal/metrics/figures.h"

namespace sidereal::session::v1 {
class TaskStatus;
}

/// Figures in messages (session.proto). Internal to service.
namespace sidereal::service {

void write_figures(const metrics::Readings& readings, session::v1::TaskStatus* status);
/// Those of a peer, without what cannot be a figure. Their help is not sent.
metrics::Readings figures_of(const session::v1::TaskStatus& status);

}  // namespace sidereal::service
