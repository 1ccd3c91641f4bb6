#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "sidereal/dataset/iterator.h"
#include "sidereal/ports/ports.h"

namespace sidereal::dataset {

/// What reads datasets for the programs of a server: definitions (definition_text.h), whose files
/// are those of this machine. Each takes the next seed after `seed` for what has none of its own.
std::shared_ptr<ports::Datasets> make_datasets(uint64_t seed);

/// `iterator` for the ops of steps; `changed` as for Iterator::read_ahead().
std::shared_ptr<ports::ElementReading> make_feed(std::shared_ptr<Iterator> iterator,
                                                 std::function<void()> changed);

}  // namespace sidereal::dataset
