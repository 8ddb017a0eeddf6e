#include "fleet/local_worker.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace shardline {

namespace {

constexpr std::string_view kListening = "listening on ";
constexpr const char* kCredentialsEnd = ".";
constexpr std::size_t kMaxPemBytes = 64 * 1024;
constexpr auto kLocalWorkerStart = std::chrono::seconds(30);

}  // namespace

std::string listening_line(const std::string& address) {
    return fmt::format("{}{}", kListening, address);
}

std::string address_in_listening_line(const std::string& line) {
    return line.rfind(kListening, 0) == 0 ? line.substr(kListening.size()) : "";
}

void write_credentials(ChildProcess& process, const Credentials& credentials) {
    for (const std::string& pem :
         {credentials.authority, credentials.certificate, credentials.private_key}) {
        const std::string ended = pem.back() == '\n' ? pem : pem + "\n";
        if (!process.write_stdin(fmt::format("{}{}\n", ended, kCredentialsEnd))) {
            throw Error(ErrorCode::kUnavailable,
                        fmt::format("local worker (pid {}) ended before it took its credentials",
                                    process.pid()));
        }
    }
}

Credentials read_credentials_from_stdin() {
    Credentials credentials;
    credentials.authority = read_stdin_until(kCredentialsEnd, kMaxPemBytes);
    credentials.certificate = read_stdin_until(kCredentialsEnd, kMaxPemBytes);
    credentials.private_key = read_stdin_until(kCredentialsEnd, kMaxPemBytes);
    return credentials;
}

LocalWorker start_local_worker(const LocalWorkerOptions& options, const Credentials& credentials) {
    std::vector<std::string> arguments = {executable_path().string(),
                                          "--log-level",
                                          options.log_level,
                                          "worker",
                                          "--listen",
                                          "127.0.0.1:0",
                                          "--name",
                                          options.name,
                                          "--credentials",
                                          "-",
                                          "--device",
                                          options.device,
                                          "--model",
                                          options.model_directory.string(),
                                          "--memory",
                                          std::to_string(options.memory_bytes)};
    if (options.num_threads > 0) {
        arguments.insert(arguments.end(), {"--threads", std::to_string(options.num_threads)});
    }
    LocalWorker worker{ChildProcess::spawn(arguments), ""};
    write_credentials(worker.process, credentials);
    while (const auto line = worker.process.read_line(kLocalWorkerStart)) {
        worker.address = address_in_listening_line(*line);
        if (!worker.address.empty()) {
            return worker;
        }
    }
    throw Error(ErrorCode::kUnavailable,
                fmt::format("local worker {} (pid {}) did not start; its own message is above",
                            options.name, worker.process.pid()));
}

}  // namespace shardline
