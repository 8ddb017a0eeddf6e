// A worker in a process of its own, for tests that kill or stop one:
//   transport_test_worker CREDENTIALS_DIRECTORY MODEL_DIRECTORY NAME PORT
// Prints its port and serves until SIGTERM.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/platform.hpp"
#include "security/credentials.hpp"
#include "transport/worker_server.hpp"
#include "unit/transport/test_executor.hpp"

int main(int argc, char** argv) {
    using namespace shardline;
    if (argc != 5) {
        return 2;
    }
    const StopSignal stop;
    WorkerOptions options;
    options.credentials = load_credentials(argv[1]);
    options.model_directory = argv[2];
    options.name = argv[3];
    options.listen = std::string("127.0.0.1:") + argv[4];
    WorkerServer server(
        options, [](const StageSpec& spec, const std::filesystem::path&, const LoadProgress&) {
            return make_test_executor(spec.range.layers.first);
        });
    std::printf("%d\n", server.port());
    std::fflush(stdout);
    stop.wait();
    server.shutdown();
    return 0;
}
