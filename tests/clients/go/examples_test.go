package contract

// [start]
import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	chatv1 "example.com/tandem/contract/gen/tandem/chat/v1"
	generatev1 "example.com/tandem/contract/gen/tandem/generate/v1"
	renderv1 "example.com/tandem/contract/gen/tandem/render/v1"
	taskv1 "example.com/tandem/contract/gen/tandem/task/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

func connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(264<<20))) // the default is 4 MB
}

// [end]

// examples has the Go examples of proto/docs, by method.
var examples = map[string]func(context.Context, *grpc.ClientConn) error{
	"RenderService.Render": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RenderService.Render]
		message := &chatv1.ChatMessage{Role: "user", Content: &chatv1.ChatMessage_Text{Text: "Hi"}}
		response, err := renderv1.NewRenderServiceClient(connection).Render(ctx, &renderv1.RenderRequest{
			Conversation:   &chatv1.Conversation{Messages: []*chatv1.ChatMessage{message}},
			ReturnTokenIds: true,
		})
		if err != nil {
			return err
		}
		fmt.Println(response.GetPrompt().GetText())
		fmt.Println(len(response.GetPrompt().GetTokenIds()), "tokens")
		// [end]
		return nil
	},

	"RenderService.BatchRender": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RenderService.BatchRender]
		message := &chatv1.ChatMessage{Role: "user", Content: &chatv1.ChatMessage_Text{Text: "Hi"}}
		conversation := &chatv1.Conversation{Messages: []*chatv1.ChatMessage{message}}
		batch := &renderv1.BatchRenderRequest{Requests: []*renderv1.RenderRequest{
			{Conversation: conversation},
			{Conversation: conversation, Model: "unknown"},
		}}
		response, err := renderv1.NewRenderServiceClient(connection).BatchRender(ctx, batch)
		if err != nil {
			return err
		}
		for _, result := range response.Results {
			if failure := result.GetFailure(); failure != nil {
				fmt.Println("failed with code", failure.Code)
			} else {
				fmt.Println(result.GetResponse().GetPrompt().GetText())
			}
		}
		// [end]
		return nil
	},

	"RenderService.ValidateTemplate": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RenderService.ValidateTemplate]
		request := &renderv1.ValidateTemplateRequest{Template: "{{ messages }}\n{% if %}"}
		response, err := renderv1.NewRenderServiceClient(connection).ValidateTemplate(ctx, request)
		if err != nil {
			return err
		}
		if problem := response.GetProblem(); problem != nil {
			fmt.Println("problem in line", problem.Line)
		}
		// [end]
		return nil
	},

	"RenderService.Tokenize": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RenderService.Tokenize]
		request := &renderv1.TokenizeRequest{Text: "Hello world"}
		response, err := renderv1.NewRenderServiceClient(connection).Tokenize(ctx, request)
		if err != nil {
			return err
		}
		fmt.Println(len(response.TokenIds), "tokens")
		// [end]
		return nil
	},

	"RenderService.Detokenize": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RenderService.Detokenize]
		request := &renderv1.DetokenizeRequest{TokenIds: []uint32{72, 105}}
		response, err := renderv1.NewRenderServiceClient(connection).Detokenize(ctx, request)
		if err != nil {
			return err
		}
		fmt.Println(response.Text)
		// [end]
		return nil
	},

	"RenderService.ParseOutput": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RenderService.ParseOutput]
		text := "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>"
		request := &renderv1.ParseOutputRequest{Output: &renderv1.ParseOutputRequest_Text{Text: text}}
		response, err := renderv1.NewRenderServiceClient(connection).ParseOutput(ctx, request)
		if err != nil {
			return err
		}
		message := response.Output.Message
		fmt.Println(message.GetText())
		for _, call := range message.ToolCalls {
			fmt.Println(call.Name, call.ArgumentsJson)
		}
		// [end]
		return nil
	},

	"RenderService.StreamParseOutput": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RenderService.StreamParseOutput]
		stream, err := renderv1.NewRenderServiceClient(connection).StreamParseOutput(ctx)
		if err != nil {
			return err
		}
		start := &renderv1.StreamParseOutputRequest_Start{Start: &renderv1.ParseOutputStart{}}
		messages := []*renderv1.StreamParseOutputRequest{{Event: start}}
		for _, text := range []string{"Let me see.\n<tool", "_call>\n{\"name\": \"get_weather\", ", "\"arguments\": {}}\n</tool_call>"} {
			messages = append(messages, &renderv1.StreamParseOutputRequest{
				Event: &renderv1.StreamParseOutputRequest_Text{Text: text},
			})
		}
		for _, message := range messages {
			if err := stream.Send(message); err != nil {
				return err
			}
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		for {
			event, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			for _, delta := range event.GetParsed().GetDeltas() {
				fmt.Print(delta.GetContent())
			}
			for _, call := range event.GetFinished().GetOutput().GetMessage().GetToolCalls() {
				fmt.Println("\n" + call.Name)
			}
		}
		// [end]
		return nil
	},

	"RegistryService.ListModels": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RegistryService.ListModels]
		client := renderv1.NewRegistryServiceClient(connection)
		response, err := client.ListModels(ctx, &renderv1.ListModelsRequest{})
		if err != nil {
			return err
		}
		for _, model := range response.Models {
			fmt.Println(model.Id, model.Adapter)
		}
		// [end]
		return nil
	},

	"RegistryService.GetModel": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RegistryService.GetModel]
		client := renderv1.NewRegistryServiceClient(connection)
		response, err := client.GetModel(ctx, &renderv1.GetModelRequest{})
		if err != nil {
			return err
		}
		fmt.Println(response.Model.Architecture, response.Model.ContextLength)
		// [end]
		return nil
	},

	"RegistryService.ListAdapters": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RegistryService.ListAdapters]
		client := renderv1.NewRegistryServiceClient(connection)
		response, err := client.ListAdapters(ctx, &renderv1.ListAdaptersRequest{})
		if err != nil {
			return err
		}
		for _, adapter := range response.Adapters {
			fmt.Println(adapter.Name)
		}
		// [end]
		return nil
	},

	"RegistryService.ExplainResolution": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [RegistryService.ExplainResolution]
		client := renderv1.NewRegistryServiceClient(connection)
		response, err := client.ExplainResolution(ctx, &renderv1.ExplainResolutionRequest{})
		if err != nil {
			return err
		}
		for _, rejected := range response.Resolution.Rejected {
			fmt.Println("not", rejected.Adapter)
		}
		fmt.Println(response.Resolution.Adapter)
		// [end]
		return nil
	},

	"GenerateService.Generate": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [GenerateService.Generate]
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel() // ends the generation if the loop ends early
		stream, err := generatev1.NewGenerateServiceClient(connection).Generate(ctx, &generatev1.GenerateRequest{
			Input:    &generatev1.GenerateRequest_Prompt{Prompt: "Once upon a time"},
			Sampling: &generatev1.Sampling{Temperature: proto.Float32(0)}, // optional fields are pointers
			Stop:     &generatev1.Stop{MaxNewTokens: proto.Uint32(8)},
		})
		for err == nil {
			var event *generatev1.GenerateResponse
			if event, err = stream.Recv(); err == nil {
				fmt.Print(event.GetDelta().GetText()) // empty for other events
				if summary := event.GetSummary(); summary != nil {
					fmt.Printf("\n%d tokens\n", summary.Usage.CompletionTokens)
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		// [end]
		return nil
	},

	"GenerateService.GetLoadedModel": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [GenerateService.GetLoadedModel]
		client := generatev1.NewGenerateServiceClient(connection)
		response, err := client.GetLoadedModel(ctx, &generatev1.GetLoadedModelRequest{})
		if err != nil {
			return err
		}
		fmt.Println(response.Model.Architecture, response.Model.ContextLength)
		// [end]
		return nil
	},

	"ControlService.GetServer": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [ControlService.GetServer]
		client := generatev1.NewControlServiceClient(connection)
		server, err := client.GetServer(ctx, &generatev1.GetServerRequest{})
		if err != nil {
			return err
		}
		fmt.Println(server.GetModel().GetArchitecture(), server.MaxRunning) // no model while it loads
		// [end]
		return nil
	},

	"ControlService.GetLoad": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [ControlService.GetLoad]
		load, err := generatev1.NewControlServiceClient(connection).GetLoad(ctx, &generatev1.GetLoadRequest{})
		if err != nil {
			return err
		}
		fmt.Println(load.Running, "running,", load.Queued, "queued")
		// [end]
		return nil
	},

	"ControlService.FlushPrefixCache": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [ControlService.FlushPrefixCache]
		client := generatev1.NewControlServiceClient(connection)
		response, err := client.FlushPrefixCache(ctx, &generatev1.FlushPrefixCacheRequest{})
		if err != nil {
			return err
		}
		fmt.Println(response.FlushedBlocks, "blocks")
		// [end]
		return nil
	},

	"ControlService.Drain": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [ControlService.Drain]
		_, err := generatev1.NewControlServiceClient(connection).Drain(ctx, &generatev1.DrainRequest{})
		if err != nil {
			return err
		}
		fmt.Println("draining")
		// [end]
		return nil
	},

	"TaskService.RunTask": func(ctx context.Context, connection *grpc.ClientConn) error {
		// [TaskService.RunTask]
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel() // ends the generation if the loop ends early
		content := &chatv1.ChatMessage_Text{Text: "Why is the sky blue?"}
		message := &chatv1.ChatMessage{Role: "user", Content: content}
		stream, err := taskv1.NewTaskServiceClient(connection).RunTask(ctx, &taskv1.RunTaskRequest{
			Conversation: &chatv1.Conversation{Messages: []*chatv1.ChatMessage{message}},
			Sampling:     &generatev1.Sampling{Temperature: proto.Float32(0)}, // optional fields are pointers
			Stop:         &generatev1.Stop{MaxNewTokens: proto.Uint32(8)},
		})
		for err == nil {
			var event *taskv1.RunTaskResponse
			if event, err = stream.Recv(); err == nil {
				fmt.Print(event.GetDelta().GetText()) // empty for other events
				if finished := event.GetFinished(); finished != nil {
					fmt.Printf("\n%d tokens\n", finished.Usage.CompletionTokens)
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		// [end]
		return nil
	},
}
