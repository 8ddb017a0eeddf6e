#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "security/credentials.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;

// Machines at home are not re-provisioned every quarter.
constexpr int kFleetDays = 3650;

struct FleetCommandArguments {
    std::string directory;
    std::vector<std::string> nodes;
};

int run_fleet(const FleetCommandArguments& arguments) {
    const fs::path directory(arguments.directory);
    const fs::path authority = directory / "authority";
    const bool existing = fs::exists(authority);
    const Fleet fleet = existing ? load_fleet(authority) : make_fleet(kFleetDays);
    if (!existing) {
        save_fleet(fleet, authority);
    }
    for (const std::string& node : arguments.nodes) {
        if (node.empty() || node == "authority" || node.find_first_of("/\\") != std::string::npos ||
            node.front() == '.') {
            throw Error(ErrorCode::kInvalidArgument,
                        fmt::format("'{}' cannot be a node's name", node));
        }
        save_credentials(make_node_credentials(fleet, node, kFleetDays), directory / node);
        fmt::print("{}: copy this directory to {} and keep it private\n",
                   (directory / node).string(), node);
    }
    fmt::print("{}: whoever has it can add nodes; keep it offline\n", authority.string());
    return 0;
}

}  // namespace

Command add_fleet_command(CLI::App& app) {
    auto arguments = std::make_shared<FleetCommandArguments>();
    CLI::App* command =
        app.add_subcommand("fleet", "Make the credentials that let machines trust each other");
    command->footer(R"(
Examples
  shardline fleet ~/fleet me pc1 pc2     a new fleet: one directory of credentials per machine
  shardline fleet ~/fleet pc3            one more machine, later
Then  shardline worker --credentials pc1  on pc1, and
      shardline serve MODEL --workers pc1:7411,pc2:7411 --credentials ~/fleet/me)");
    command->add_option("DIR", arguments->directory, "where the fleet's files are kept")
        ->required();
    command->add_option("NODE", arguments->nodes, "names of the machines to add")->required();
    return {command, [arguments] { return run_fleet(*arguments); }};
}

}  // namespace shardline
