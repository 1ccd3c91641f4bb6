#include "tests/sim/lives.h"

namespace sidereal::sim {

void Outcomes::add(const Outcomes& other) {
  ok += other.ok;
  refused += other.refused;
  late += other.late;
  cancelled += other.cancelled;
  lost += other.lost;
  unknown += other.unknown;
  no_room += other.no_room;
  resumed += other.resumed;
}

}  // namespace sidereal::sim
