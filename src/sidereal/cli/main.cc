#include "sidereal/cli/commands.h"

int main(int argc, char** argv) { return sidereal::cli::run(argc, argv); }
