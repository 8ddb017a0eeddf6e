#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/platform.hpp"
#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/fleet_options.hpp"
#include "stage/devices.hpp"
#include "transport/worker_client.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kSmallMemory = std::uint64_t{2} << 30;
constexpr double kSlowRoundTripMs = 20.0;

struct DoctorArguments {
    std::string workers;
    std::string credentials;
    bool json = false;
};

// What was found, and what somebody should do about it.
struct Finding {
    std::string subject;
    std::string state;
    std::string advice;  // empty: all is well
};

std::vector<Finding> examine_host() {
    std::vector<Finding> findings;
    const std::uint64_t available = available_memory_bytes();
    findings.push_back({"cores", std::to_string(num_cores()), ""});
    findings.push_back(
        {"memory",
         fmt::format("{:.1f} GiB free of {:.1f}", static_cast<double>(available) / (1U << 30),
                     static_cast<double>(total_memory_bytes()) / (1U << 30)),
         available < kSmallMemory ? "less than 2 GiB is free: close programs before lending this "
                                    "machine"
                                  : ""});
    findings.push_back({"OpenVINO", openvino_version(), ""});
    bool accelerator = false;
    for (const DeviceInfo& device : list_devices()) {
        accelerator = accelerator || device.name != "CPU";
        findings.push_back(
            {device.name,
             fmt::format("{} ({})", device.full_name, fmt::join(device.capabilities, " ")), ""});
    }
    if (!accelerator) {
        findings.push_back({"GPU, NPU", "none found",
                            "if this machine has one, install its driver (intel-opencl-icd for "
                            "the GPU, the NPU driver package); stages run on the CPU until then"});
    }
    return findings;
}

Finding examine_worker(const std::string& address, const Credentials& credentials) {
    try {
        describe_worker(address, credentials, kDescribeTimeout);  // pays for TLS once
        const auto start = std::chrono::steady_clock::now();
        const WorkerDescription worker = describe_worker(address, credentials, kDescribeTimeout);
        const double ms =
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                .count();
        return {
            address,
            fmt::format("{}: {:.1f} GiB for stages, {} cores, {:.1f} ms to connect and ask",
                        worker.name, static_cast<double>(worker.memory_limit_bytes) / (1U << 30),
                        worker.num_cores, ms),
            ms > kSlowRoundTripMs ? "a slow link: every token pays it once per hop; prefer "
                                    "cable over Wi-Fi"
                                  : ""};
    } catch (const Error& error) {
        return {address, "not usable", error.what()};
    }
}

int run_doctor(const DoctorArguments& arguments) {
    std::vector<Finding> findings = examine_host();
    if (!arguments.workers.empty()) {
        const Credentials credentials = load_credentials(arguments.credentials);
        for (const std::string& address : split_addresses(arguments.workers)) {
            findings.push_back(examine_worker(address, credentials));
        }
    }
    nlohmann::json rows = nlohmann::json::array();
    bool unusable = false;
    for (const Finding& finding : findings) {
        unusable = unusable || finding.state == "not usable";
        rows.push_back(
            {{"subject", finding.subject}, {"state", finding.state}, {"advice", finding.advice}});
        if (!arguments.json) {
            fmt::print("{:<10} {}\n", finding.subject, finding.state);
            if (!finding.advice.empty()) {
                fmt::print("{:<10} -> {}\n", "", finding.advice);
            }
        }
    }
    if (arguments.json) {
        fmt::print("{}\n", rows.dump(2));
    }
    return unusable ? kExitUnavailable : 0;
}

}  // namespace

Command add_doctor_command(CLI::App& app) {
    auto arguments = std::make_shared<DoctorArguments>();
    CLI::App* command = app.add_subcommand(
        "doctor", "Look at this machine and the way to each worker, and say what to do");
    command->footer(R"(
Examples
  shardline doctor
  shardline doctor --workers pc1:7411,pc2:7411 --credentials ~/fleet/me)");
    auto* workers = command->add_option("--workers", arguments->workers, "HOST:PORT,... to try");
    auto* credentials =
        command->add_option("--credentials", arguments->credentials, "made by `shardline fleet`");
    workers->needs(credentials);
    command->add_flag("--json", arguments->json, "print JSON");
    return {command, [arguments] { return run_doctor(*arguments); }};
}

}  // namespace shardline
