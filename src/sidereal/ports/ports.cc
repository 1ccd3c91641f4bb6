#include "sidereal/ports/ports.h"

namespace sidereal::ports {

HostFunctions::~HostFunctions() = default;
ReadingWork::~ReadingWork() = default;
ElementReading::~ElementReading() = default;
Datasets::~Datasets() = default;
Rendezvous::~Rendezvous() = default;
CallCompletion::~CallCompletion() = default;
Exchange::~Exchange() = default;

}  // namespace sidereal::ports
