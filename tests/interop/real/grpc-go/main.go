// A gRPC client that finds its servers by xDS: each line on standard input is a target to ask, and it prints what it was told.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
)

// bytesAsTheyAre is a codec without messages.
type bytesAsTheyAre struct{}

func (bytesAsTheyAre) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }

func (bytesAsTheyAre) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (bytesAsTheyAre) Name() string { return "bytes" }

func main() {
	channels := map[string]*grpc.ClientConn{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		target := lines.Text()
		if channels[target] == nil {
			channel, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				fmt.Println(err)
				continue
			}
			channels[target] = channel
		}
		fmt.Println(ask(channels[target]))
	}
}

func ask(channel *grpc.ClientConn) string {
	limited, end := context.WithTimeout(context.Background(), 10*time.Second)
	defer end()
	request, reply := []byte{}, []byte{}
	if err := channel.Invoke(limited, "/test.Echo/Name", &request, &reply, grpc.ForceCodec(bytesAsTheyAre{})); err != nil {
		return fmt.Sprintf("%s: %s", status.Code(err), status.Convert(err).Message())
	}
	return string(reply)
}
