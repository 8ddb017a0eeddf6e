#pragma once

#include <string>
#include <vector>

namespace shardline {

// One device that OpenVINO offers on this host.
struct DeviceInfo {
    std::string name;                       // "CPU", "GPU.0", "NPU"
    std::string full_name;                  // the maker's
    std::vector<std::string> capabilities;  // "FP32", "INT8", "BF16", ...
};

std::vector<DeviceInfo> list_devices();
std::string openvino_version();

}  // namespace shardline
