#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/platform.hpp"
#include "security/credentials.hpp"

namespace shardline {

// A worker process of ours on this host. It gets its credentials through stdin, so that no key
// touches a disk, and ends by itself when this process goes, however that happens.
struct LocalWorker {
    ChildProcess process;
    std::string address;  // 127.0.0.1:port
};

struct LocalWorkerOptions {
    std::filesystem::path model_directory;
    std::string name;
    std::string device = "CPU";
    std::uint64_t memory_bytes = 0;
    std::uint32_t num_threads = 0;
    std::string log_level;
};

// Starts one and waits until it listens. Throws Error when it ends or says nothing for
// kLocalWorkerStart.
LocalWorker start_local_worker(const LocalWorkerOptions& options, const Credentials& credentials);

// The worker's side of that: three PEM texts from stdin, each ended by kCredentialsEnd.
void write_credentials(ChildProcess& process, const Credentials& credentials);
Credentials read_credentials_from_stdin();

// The line a worker prints on stdout when it accepts connections, and its reading.
std::string listening_line(const std::string& address);
std::string address_in_listening_line(const std::string& line);  // empty: another line

}  // namespace shardline
