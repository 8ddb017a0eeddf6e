#pragma once

#include <filesystem>
#include <string>

namespace shardline {

// PEM texts with which a node proves that it belongs to a fleet and checks that others do.
struct Credentials {
    std::string authority;    // the fleet's CA certificate
    std::string certificate;  // this node's, signed by the CA
    std::string private_key;  // this node's; the file is 0600
};

// A fresh fleet: a CA and one node certificate, valid for `valid_days`, in memory only. Every
// node certificate carries the DNS name kFleetServerName, which clients check instead of host
// names: machines at home have none.
inline constexpr const char* kFleetServerName = "node.shardline.fleet";

struct Fleet {
    std::string authority;
    std::string authority_key;
};

Fleet make_fleet(int valid_days);
Credentials make_node_credentials(const Fleet& fleet, const std::string& node_name, int valid_days);

// A directory with ca.pem, node.pem and node.key. load refuses (Error) a missing file, a key that
// does not belong to the certificate, an expired certificate, and a key others can read.
void save_credentials(const Credentials& credentials, const std::filesystem::path& directory);
Credentials load_credentials(const std::filesystem::path& directory);

// Compares in time that depends only on the lengths. For API keys.
bool equal_secrets(const std::string& left, const std::string& right);

}  // namespace shardline
