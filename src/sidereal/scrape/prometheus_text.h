#pragma once

#include <string>

#include "sidereal/metrics/figures.h"

namespace sidereal::scrape {

/// The text's type, for HTTP.
inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

/// Readings in Prometheus' text format (0.0.4): a family per name. Every sample says whose it is,
/// task="/job:ps/replica:0/task:0", beside the figure's own label. Histograms have a bucket for
/// every other power of two of their values, from 2^8 to 2^38: 256 ns to 275 s.
std::string prometheus_text(const metrics::Readings& readings, const std::string& task);

}  // namespace sidereal::scrape
